"""What stands below a table of ours and the paper's."""

from __future__ import annotations

from pathlib import Path

from adafed.paper.reproduce import of_profile, target
from adafed.studies.compare import Run


def test_the_note_of_a_profile_has_the_numbers_of_the_variant_that_was_run() -> None:
    for name in ("cifar100-1", "cifar100-1-e10"):
        study = target(name).study("laptop")
        method = next(iter(study.methods))
        config = study.config(method, 0)
        (note,) = of_profile(study, "laptop", [Run(method, config, Path("nowhere"))])
        assert f"rounds = {config.rounds}, " in note
        assert "model.width = 8" in note
    assert target("cifar100-1-e10").study("laptop").config("FedAvg", 0).rounds < 20


def test_the_note_of_a_profile_names_the_methods_it_has_settings_for() -> None:
    study = target("fashion").study("tuned")
    runs = [Run(name, study.config(name, 1), Path("nowhere")) for name in ("FedAvg", "q-FFL", "AdaFed (default)")]
    (note,) = of_profile(study, "tuned", runs)
    assert note == "tuned profile: as in the paper; settings of its own for q-FFL, AdaFed (default)"
    swept = target("fashion", sweep=True).study("tuned")
    (note,) = of_profile(swept, "tuned", [Run(name, swept.config(name, 1), Path("nowhere")) for name in swept.methods])
    assert note.endswith("; settings of its own for AdaFed as printed, AdaFed")
