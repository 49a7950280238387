"""The test bench: which runs it plans, what it reads of honest clients, and that it goes on where it was."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from adafed import AdafedError
from adafed.config.studies import Study, study_from
from adafed.engines.station import liars_of
from adafed.runs.summary import evaluations
from adafed.studies.attacks import ATTACKS, NONE, TOGETHER, Trial, bench, honest, tables
from adafed.studies.compare import finished, run_all

SMALL = {
    "rounds": 3,
    "data": {"name": "synthetic", "clients": 5, "samples": 40, "features": 6, "classes": 3},
    "model": {"name": "mlp", "hidden": [4]},
    "run": {"workers": 0},
    "methods": {"FedAvg": {"rule": "fedavg"}, "AdaFed": {"rule": "adafed"}},
}


def study() -> Study:
    return study_from(SMALL, "small")


def test_every_rule_meets_every_attack_with_guards_and_without(tmp_path: Path) -> None:
    made = bench(study(), [0, 1], [], tmp_path)
    attacks = [name for name in ATTACKS if name not in TOGETHER]
    assert len(made.runs) == 2 * 2 * len(attacks)
    assert len(made.all) == len({run.directory for run in made.all}) == 2 * len(made.runs)
    assert [run.config.seed for run in made.all] == sorted(run.config.seed for run in made.all)
    for trial, runs in made.runs.items():
        for run in runs:
            assert bool(run.config.parts.guards) == (trial.guards == "on")
            assert bool(run.config.parts.lies) == (trial.attack != NONE)
    assert TOGETHER[0] in {trial.attack for trial in bench(study(), [0], [], tmp_path, share=0.4).runs}


def test_an_attack_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(AdafedError, match=r"^--attack is 'x'; there are none, loss x100, "):
        bench(study(), [0], [], tmp_path, attacks=["x"])


def test_honest_clients_are_those_that_lie_in_neither(tmp_path: Path) -> None:
    made = bench(study(), [0, 1], [], tmp_path, attacks=["update x100", "not a number"])
    assert honest(made.all[0]) is None
    run_all(made.all, lambda *_: None)
    assert all(finished(run) for run in made.all)
    run = made.runs[Trial("FedAvg", "update x100", "off")][0]
    (liar,) = liars_of(run.config, [str(k) for k in range(5)])
    accuracies = [score.accuracy for _, score in evaluations(run.directory)[1][-1].evaluation().scores]  # type: ignore[union-attr]
    others = [100 * accuracy for k, accuracy in enumerate(accuracies) if k != liar and accuracy is not None]
    found = honest(run)
    assert found is not None
    assert found.mean == pytest.approx(np.mean(others))
    assert found.worst == pytest.approx(min(others))
    shown = tables(made, "a title")
    assert [table.title for table in shown] == ["a title: FedAvg", "a title: AdaFed"]
    assert [row.label for row in shown[0].rows] == [NONE, "update x100", "not a number"]
    reference = [honest(one) for one in made.runs[Trial("FedAvg", NONE, "off")]]
    attacked = [honest(one) for one in made.runs[Trial("FedAvg", "update x100", "off")]]
    lost = np.mean([a.mean - b.mean for a, b in zip(reference, attacked, strict=True) if a and b])
    assert shown[0].rows[1].cells[2].mean == pytest.approx(lost)
    run_all(made.all, lambda *_: pytest.fail("a run was done again"))


def test_a_federation_without_honest_clients_has_no_table(tmp_path: Path) -> None:
    alone = study_from(SMALL | {"data": SMALL["data"] | {"clients": 1}}, "alone")
    made = bench(alone, [0], [], tmp_path, attacks=["labels flipped"])
    run_all(made.all[-1:], lambda *_: None)
    with pytest.raises(AdafedError, match=r"evaluates no honest client, and the table is of those; lower --share$"):
        honest(made.all[-1])
