"""All kept results together: who is told apart from whom, and that the page made of them is up to date."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path

import pytest

import adafed
from adafed.errors import AdafedError
from adafed.studies import overview
from adafed.studies.kept import Kept, KeptRun, save

ROOT = Path(__file__).parents[2]
TODAY = {"rule": {"name": "adafed", **vars(adafed.rule("adafed"))}}


def run(
    method: str, seed: int, worst: float, *, own: bool = False, settings: dict[str, object] | None = None
) -> KeptRun:
    values = {"mean": (worst + 10.0,), "worst_10": (worst,), "excess": (20.0 - worst / 10,)}
    return KeptRun(method, seed, 1, own, (1,), values, settings or {})


def kept(*runs: KeptRun) -> Kept:
    return Kept("Made up", ("mean",), runs, {"profile": "short"})


# FedAvg swings with the seed, B is always two above it, C is at B's level but swings on its own, D has its own models.
SETUP = overview.Setup(
    "made-up",
    kept(
        *(run("FedAvg", seed, 40.0 + 5 * seed) for seed in range(4)),
        *(run("B", seed, 42.0 + 5 * seed + 0.1 * (seed % 2)) for seed in range(4)),
        *(run("C", seed, 42.0 + 5 * (3 - seed)) for seed in range(4)),
        *(run("D", seed, 90.0, own=True) for seed in range(4)),
    ),
)


def test_ties_are_paired_and_personalised_methods_do_not_compete() -> None:
    assert SETUP.best("worst_10") == ["B", "C"]  # FedAvg is below B at every seed, C now above and now below it
    assert SETUP.best("excess") == ["B", "C"]  # smaller is better
    assert "D" not in SETUP.rivals()


def test_a_single_pair_tells_nobody_apart_and_does_not_compete() -> None:
    setup = overview.Setup("one", kept(run("FedAvg", 0, 10.0), run("B", 0, 90.0)))
    assert setup.best("worst_10") == ["B", "FedAvg"]
    more = overview.Setup("more", kept(*SETUP.kept.runs, run("E", 0, 99.0)))
    assert more.best("worst_10") == ["B", "C"]


def test_methods_are_ranked_over_the_seeds_they_share_with_fedavg() -> None:
    easy = [run("E", seed, 41.0 + 5 * seed + 0.1 * (seed % 2)) for seed in (2, 3)]  # one above FedAvg
    assert overview.Setup("easy", kept(*SETUP.kept.runs, *easy)).best("worst_10")[0] == "B"


def test_two_methods_of_one_spoken_name_both_stay() -> None:
    before = {"rule": {**TODAY["rule"], "gamma": 77.0}}
    runs = [run(name, 0, 1.0, settings=before) for name in ("AdaFed (default)", "AdaFed (default), memory")]
    assert list(overview.Setup("old", kept(*runs)).methods()) == [
        "AdaFed (a former default)",
        "AdaFed (default), memory",
    ]


def test_only_a_run_with_todays_options_is_called_the_default() -> None:
    told = run("adafed", 0, 1.0, settings=TODAY)
    assert overview.spoken("adafed", told) == overview.spoken("AdaFed (default)", told) == "AdaFed (default, no memory)"
    told = run("adafed", 0, 1.0, settings=TODAY | {"memory": "auto"})
    assert overview.spoken("adafed", told) == overview.spoken("AdaFed (default)", told) == "AdaFed (default)"
    assert overview.spoken("AdaFed (default), auto", told) == "AdaFed (default)"  # beside the same without one
    for memory in ("all", 7):
        told = run("AdaFed (default), memory", 0, 1.0, settings=TODAY | {"memory": memory})
        assert overview.spoken("AdaFed (default), memory", told) == "AdaFed (default), memory"
    before = run("adafed", 0, 1.0, settings={"rule": {**TODAY["rule"], "gamma": 77.0}})
    assert overview.spoken("AdaFed (default)", before) == "AdaFed (a former default)"
    assert overview.spoken("adafed(gamma=3.0, hull=simplex)", before) == "AdaFed, gamma 3, hull simplex"
    assert overview.spoken("FedFV", before) == "FedFV"


def test_a_new_file_is_picked_up_and_others_are_told_why_not(tmp_path: Path) -> None:
    save(SETUP.kept, tmp_path / "a.json")
    save(kept(run("FedAvg", 0, 1.0), run("B", 0, 2.0), run("B", 1, 2.0)), tmp_path / "b.json")
    save(kept(run("B", 0, 1.0), run("B", 1, 1.0)), tmp_path / "c.json")
    found, left = overview.setups(tmp_path)
    assert [setup.name for setup in found] == ["a"]
    assert left == {"b": "one seed of FedAvg", "c": "no FedAvg"}
    assert "Made up, short" in overview.table(found)
    assert "| Made up, short | B | **59.5** |" in overview.others(found)
    assert "**B** 49.5; ties: C" in overview.verdicts(found)
    with pytest.raises(AdafedError, match="has no kept results"):
        overview.setups(tmp_path / "nothing")


def test_another_number_is_another_figure() -> None:
    moved = overview.Setup(
        "made-up", kept(*(run("FedAvg", s, 40.0) for s in range(2)), run("B", 0, 41), run("B", 1, 41))
    )
    assert overview.fingerprint(overview.panels([SETUP])) != overview.fingerprint(overview.panels([moved]))


def test_the_figure_has_every_method_and_its_fingerprint(tmp_path: Path) -> None:
    overview.drawn([SETUP], tmp_path / "x.svg", 1)
    text = (tmp_path / "x.svg").read_text()
    assert overview.fingerprint(overview.panels([SETUP])) in text
    assert all(f">{word}<" in text for word in ("B", "C", "worst 10%", "mean"))


def test_the_page_of_results_is_up_to_date() -> None:
    spec = importlib.util.spec_from_file_location("results_script", ROOT / "scripts" / "results.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    assert script.stale() == [], "python scripts/results.py"


def test_names_of_ones_own_and_files_of_personal_models_are_taken_as_they_are() -> None:
    strange = overview.Setup("s", Kept("s", ("mean",), tuple(
        run(method, seed, 50.0 + seed) for method in ("adafed(tuned)", "fedavg", "FedAvg") for seed in (0, 1)
    )))  # fmt: skip
    assert list(strange.methods()) == ["adafed(tuned)", "fedavg", "FedAvg"]
    personal = replace(strange.kept, runs=tuple(replace(one, personalised=True) for one in strange.kept.runs))
    assert "nobody has one model for all" in overview.verdicts([overview.Setup("s", personal)])
