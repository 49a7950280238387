"""What kept results say: the tables hold what the numbers say."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.studies.made import KEPT, run

from adafed.config.studies import study_from
from adafed.errors import AdafedError
from adafed.runs.summary import summarise
from adafed.studies.compare import comparison, planned, run_all
from adafed.studies.kept import Kept, KeptRun, gathered
from adafed.studies.results import curves, difference, paired, rounds_to, scores


@pytest.mark.parametrize("sampling", ["uniform", "loss", "power-of-choice"])
def test_tables_say_where_methods_see_other_clients(sampling: str, tmp_path: Path) -> None:
    study = study_from(
        {
            "rounds": 2,
            "data": {"name": "synthetic", "clients": 4, "samples": 20, "features": 4, "classes": 2},
            "model": {"name": "logistic"},
            "cohort": {"count": 2, "sampling": sampling},
            "run": {"workers": 0},
            "methods": {"FedAvg": {"rule": "fedavg"}, "TERM": {"rule": "term"}},
        },
        "small",
    )
    runs = planned(study, [0], [], tmp_path / "runs")
    run_all(runs, lambda *_: None)
    found = [(one.method, summarise(one.directory)) for one in runs]
    kept = gathered("small", ("mean",), runs, {})
    for table in (comparison("small", found, ("mean",)), paired(kept, "FedAvg", ("mean",))):
        assert any("differ in whom they see" in note for note in table.notes) == (sampling != "uniform")
    assert not any("whom they see" in note for note in comparison("small", found[:1], ("mean",)).notes)


def test_scores_are_those_of_the_last_tenth_or_of_the_end() -> None:
    assert scores(KEPT, ("mean",)).rows[1].cells[0].values == (64.0, 56.0)  # one evaluation is in the last tenth
    assert scores(KEPT, ("mean",), final=True).rows[0].cells[0].values == (60.0, 50.0)


def test_differences_are_paired_over_the_seeds() -> None:
    (row,) = paired(KEPT, "FedAvg", ("mean", "worst_10")).rows
    assert row.label == "AdaFed"
    assert [cell.mean for cell in row.cells] == [5.0, 11.0]  # 4 and 6; 10 and 12
    assert row.cells[0].mark == " ±12.71"  # t of one degree of freedom, times a standard error of 1
    with pytest.raises(AdafedError, match="--against is 'TERM'; there are 'FedAvg', 'AdaFed'"):
        paired(KEPT, "TERM", ("mean",))


def test_a_single_pair_has_no_interval() -> None:
    assert difference([2.0]).half is None
    assert difference([2.0, 2.0]).half == 0.0


def test_rounds_to_reach_are_not_fooled_by_one_swing() -> None:
    swinging = run("swings", 0, [10, 90, 10, 10, 50, 50, 50, 50, 50, 50])
    table = rounds_to(Kept("s", ("mean",), (*KEPT.runs, swinging)), {"mean": 45.0})
    reached = {row.label: row.cells[0] for row in table.rows}
    assert reached["FedAvg"].values == (60.0, 60.0)  # 40, 50, 50
    assert reached["AdaFed"].values == (40.0, 40.0)
    assert reached["swings"].values == (70.0,)
    never = rounds_to(KEPT, {"worst_10": 15.0}).rows[0].cells[0]
    assert never.mean is None
    assert never.mark == " (2 of 2 never)"


def test_who_got_there_once_is_not_the_fastest() -> None:
    lucky = (run("lucky", 0, [90] * 10), run("lucky", 1, [10] * 10))
    table = rounds_to(Kept("s", ("mean",), (*KEPT.runs, *lucky)), {"mean": 45.0})
    best = [table.rows[row].label for row, rank in table.ranks(0).items() if rank == 1]
    assert best == ["AdaFed"]


def test_a_users_measure_is_read_without_its_module() -> None:
    kept = Kept("s", ("gone:gap",), (KeptRun("A", 0, 1, False, (1,), {"gone:gap": (2.0,)}),))
    assert scores(kept, ("gone:gap",)).columns[0].label == "gap"
    assert scores(kept, ("gone:gap",)).rows[0].cells[0].values == (2.0,)


def test_curves_are_the_evaluations_of_every_seed_and_leave_out_what_is_not_known() -> None:
    gap = KeptRun("FedAvg", 2, 30, False, (10, 20, 30), {"mean": (1.0, None, 3.0)})
    mean, worst = curves(Kept("A study", ("mean",), (*KEPT.runs, gap)), ["mean", "worst_10"])
    assert mean.label == "mean %"
    assert list(mean.seeds) == ["FedAvg", "AdaFed"]
    assert mean.seeds["FedAvg"][2] == ([10.0, 30.0], [1.0, 3.0])
    assert mean.seeds["AdaFed"][1][1][-1] == 56
    assert worst.seeds["FedAvg"][2] == ([], [])


def test_less_is_reached_from_above_and_intervals_have_the_digits_of_their_column() -> None:
    def falling(method: str, seed: int, last: float) -> KeptRun:
        values = {"std": (9.0, 6.0, 3.0, 3.0, 3.0), "kl": (last,) * 5}
        return KeptRun(method, seed, 50, False, (10, 20, 30, 40, 50), values)

    last = {("a", 0): 0.01, ("a", 1): 0.011, ("b", 0): 0.02, ("b", 1): 0.022}
    kept = Kept("s", ("std", "kl"), tuple(falling(*which, value) for which, value in last.items()))
    table = rounds_to(kept, {"std": 4.0})
    assert table.columns[0].label == "σ_a ≤ 4"
    assert table.rows[0].cells[0].values == (40.0, 40.0)
    assert paired(kept, "a", ("kl",)).rows[0].cells[0].mark == " ±0.0064"
