"""Kept results: what goes in comes out, and the tables say what the numbers say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from adafed import simulate
from adafed.config.studies import study_from
from adafed.errors import AdafedError
from adafed.runs.summary import summarise
from adafed.studies.compare import Run, comparison, planned, run_all
from adafed.studies.results import (
    Kept,
    KeptRun,
    curves,
    difference,
    gathered,
    joined,
    keep,
    load,
    paired,
    require_alike,
    rounds_to,
    save,
    scores,
)


def run(method: str, seed: int, means: list[float], worst: float = 10.0) -> KeptRun:
    at = tuple(range(10, 10 * len(means) + 1, 10))
    values = {"mean": tuple(means), "worst_10": (worst,) * len(means)}
    return KeptRun(method, seed, at[-1], False, at, dict(values))


KEPT = Kept(
    "A study",
    ("mean", "worst_10"),
    (
        run("FedAvg", 0, [10, 20, 30, 40, 50, 50, 50, 50, 50, 60]),
        run("FedAvg", 1, [10, 20, 30, 40, 50, 50, 50, 50, 50, 50]),
        run("AdaFed", 0, [30, 40, 50, 60, 60, 60, 60, 60, 60, 64], 20.0),
        run("AdaFed", 1, [30, 40, 50, 60, 60, 60, 60, 60, 60, 56], 22.0),
    ),
    {"profile": "laptop"},
)


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    save(KEPT, tmp_path / "deep" / "kept.json")
    assert load(tmp_path / "deep" / "kept.json") == KEPT


def test_a_run_is_kept_with_its_summary(tmp_path: Path) -> None:
    study = study_from(
        {
            "rounds": 12,
            "data": {"name": "synthetic", "clients": 4, "samples": 20, "features": 4, "classes": 2},
            "model": {"name": "logistic"},
            "evaluation": {"every": 1},
            "run": {"workers": 0},
            "methods": {"FedAvg": {"rule": "fedavg"}, "Ditto": {"rule": "fedavg", "ditto": {"lambda": 0.1}}},
        },
        "small",
    )
    runs = planned(study, [0], [], tmp_path / "runs")
    run_all(runs, lambda *_: None)
    path = tmp_path / "kept.json"
    keep(gathered("small", ("mean", "std", "angle", "kl"), runs, {}), path)  # the last two only as they are asked for
    found = load(path).methods()
    assert found["Ditto"][0].personalised
    for one in runs:
        summary, kept = summarise(one.directory), found[one.method][0]
        assert kept.at == tuple(range(1, 13))
        assert "gini" not in kept.evaluations
        for key, digit in {"mean": 1e-3, "std": 1e-3, "worst_10": 1e-3, "angle": 1e-3, "kl": 1e-5}.items():
            assert kept.final[key] == pytest.approx(summary.final[key], abs=digit)
            assert kept.tail[key] == pytest.approx(summary.tail[key], abs=digit)


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


def test_later_runs_are_added_and_replace_their_like(tmp_path: Path) -> None:
    path = tmp_path / "kept.json"
    keep(KEPT, path)
    better = run("AdaFed", 1, [99.0] * 10)
    keep(Kept("A study", KEPT.columns, (better, run("AdaFed", 2, [1.0] * 10)), KEPT.told), path)
    found = load(path)
    assert len(found.runs) == 5
    assert found.methods()["AdaFed"][1] == better
    assert joined(KEPT, KEPT).runs == KEPT.runs


def test_runs_of_another_study_are_not_mixed_in(tmp_path: Path) -> None:
    path = tmp_path / "kept.json"
    keep(KEPT, path)
    for title, told in (("Another", KEPT.told), ("A study", {"profile": "paper"})):
        with pytest.raises(
            AdafedError, match=r"keeps 'A study, laptop', and these runs are of .*; choose another file"
        ):
            keep(Kept(title, KEPT.columns, KEPT.runs, told), path)
    assert load(path) == KEPT
    (tmp_path / "file").write_text("")
    with pytest.raises(AdafedError, match="could not be written"):
        keep(KEPT, tmp_path / "file" / "kept.json")


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


def test_a_run_that_was_stopped_is_kept_when_it_is_finished(tmp_path: Path) -> None:
    study = study_from(
        {
            "rounds": 4,
            "data": {"name": "synthetic", "clients": 4, "samples": 20, "features": 4, "classes": 2},
            "model": {"name": "logistic"},
            "run": {"workers": 0},
            "methods": {"FedAvg": {"rule": "fedavg"}},
        },
        "small",
    )
    (one,) = planned(study, [0], [], tmp_path / "runs")
    rounds = simulate(one.config, directory=one.directory)
    next(rounds)
    next(rounds)
    rounds.close()
    assert gathered("small", ("mean",), [one], {}).runs == ()
    run_all([one], lambda *_: None)
    assert [kept.rounds for kept in gathered("small", ("mean",), [one], {}).runs] == [4]


def test_what_the_repository_keeps_can_be_read_and_is_told_of() -> None:
    folder = Path(__file__).parents[2]
    told = "".join(page.read_text() for page in sorted((folder / "docs" / "notebook").glob("*.md")))
    files = sorted((folder / "results").glob("*.json"))
    assert files
    for file in files:
        kept = load(file)
        assert f"results/{file.name}" in told
        assert all(run.at[-1] == run.rounds for run in kept.runs), "a run that was cut short"


def test_what_was_kept_by_another_formula_is_left_out(tmp_path: Path) -> None:
    """Files of format 1 have a part of chance that knew nothing of how few clients there were."""
    values = {"mean": (80.0,), "std": (5.0,), "floor": (4.0,), "excess": (3.0,)}
    save(Kept("s", ("mean",), (KeptRun("A", 0, 1, False, (1,), values),)), tmp_path / "x.json")
    assert load(tmp_path / "x.json").measures() == ("mean", "std", "floor", "excess")
    text = (tmp_path / "x.json").read_text()
    (tmp_path / "x.json").write_text(text.replace('"format": 2', '"format": 1'))
    assert load(tmp_path / "x.json").measures() == ("mean", "std")


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"format": 1}', '{"format": 1, "runs": [{}]}', '{"runs": 3}'])
def test_other_files_are_told_in_a_sentence(content: str, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text(content)
    with pytest.raises(AdafedError, match="holds no kept results"):
        load(tmp_path / "x.json")


@pytest.mark.parametrize(
    ("key", "value"),
    [("seed", "0"), ("rounds", None), ("method", ["A"]), ("at", [1]), ("evaluations", {"mean": ["x"] * 10})],
)
def test_a_damaged_run_is_told_in_a_sentence(key: str, value: object, tmp_path: Path) -> None:
    save(KEPT, tmp_path / "x.json")
    content = json.loads((tmp_path / "x.json").read_text())
    content["runs"][0][key] = value
    (tmp_path / "x.json").write_text(json.dumps(content))
    with pytest.raises(AdafedError, match="holds no kept results"):
        load(tmp_path / "x.json")


def test_another_format_and_a_missing_file_are_told(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text(json.dumps({"format": 99, "title": "", "columns": [], "told": {}}))
    with pytest.raises(AdafedError, match="is of format 99"):
        load(tmp_path / "x.json")
    with pytest.raises(AdafedError, match="cannot be read: No such file"):
        load(tmp_path / "y.json")


def test_a_users_measure_is_read_without_its_module() -> None:
    kept = Kept("s", ("gone:gap",), (KeptRun("A", 0, 1, False, (1,), {"gone:gap": (2.0,)}),))
    assert scores(kept, ("gone:gap",)).columns[0].label == "gap"
    assert scores(kept, ("gone:gap",)).rows[0].cells[0].values == (2.0,)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("title",), 3),
        (("title",), None),
        (("columns",), "mean"),
        (("columns",), [1, 2]),
        (("told",), [["a", 1]]),
        (("told",), None),
        (("runs",), {"a": 1}),
        (("runs",), "runs"),
        (("format",), True),
        (("format",), 1.0),
        (("runs", 0, "seed"), True),
        (("runs", 0, "seed"), -1),
        (("runs", 0, "rounds"), 5),
        (("runs", 0, "personalised"), "no"),
        (("runs", 0, "settings"), [1]),
        (("runs", 0, "at"), "1234567890"),
        (("runs", 0, "at"), [10] * 10),
        (("runs", 0, "at"), [100, 90, 80, 70, 60, 50, 40, 30, 20, 10]),
        (("runs", 0, "at"), [True, *range(2, 11)]),
        (("runs", 0, "at"), [0, *range(2, 11)]),
        (("runs", 0, "evaluations", "mean"), [float("nan")] * 10),
        (("runs", 0, "evaluations", "mean"), [float("inf")] * 10),
        (("runs", 0, "evaluations", "mean"), [10**400] * 10),
        (("runs", 0, "evaluations", "mean"), [True] * 10),
        (("runs", 0, "evaluations", "mean"), "0123456789"),
        (("runs", 0, "evaluations"), [["mean", [1] * 10]]),
        (("runs", 0, "unknown"), 1),
    ],
    ids=str,
)
def test_what_nobody_writes_is_told_in_a_sentence(path: tuple[str | int, ...], value: object, tmp_path: Path) -> None:
    save(KEPT, tmp_path / "x.json")
    content = json.loads((tmp_path / "x.json").read_text())
    place = content
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    (tmp_path / "x.json").write_text(json.dumps(content))
    with pytest.raises(AdafedError, match=r"holds no kept results|is of format"):
        load(tmp_path / "x.json")


def test_a_run_kept_twice_and_deep_json_are_told(tmp_path: Path) -> None:
    save(KEPT, tmp_path / "x.json")
    content = json.loads((tmp_path / "x.json").read_text())
    content["runs"].append(content["runs"][0])
    for text in (json.dumps(content), "[" * 100_000, '{"format": 1, "told": ' + '{"a":' * 100_000):
        (tmp_path / "x.json").write_text(text)
        with pytest.raises(AdafedError, match="holds no kept results"):
            load(tmp_path / "x.json")


def test_curves_are_the_evaluations_of_every_seed_and_leave_out_what_is_not_known() -> None:
    gap = KeptRun("FedAvg", 2, 30, False, (10, 20, 30), {"mean": (1.0, None, 3.0)})
    mean, worst = curves(Kept("A study", ("mean",), (*KEPT.runs, gap)), ["mean", "worst_10"])
    assert mean.label == "mean %"
    assert list(mean.seeds) == ["FedAvg", "AdaFed"]
    assert mean.seeds["FedAvg"][2] == ([10.0, 30.0], [1.0, 3.0])
    assert mean.seeds["AdaFed"][1][1][-1] == 56
    assert worst.seeds["FedAvg"][2] == ([], [])


def test_some_methods_of_a_kept_file_in_the_order_they_are_asked_for() -> None:
    assert list(KEPT.only(["AdaFed", "FedAvg"]).methods()) == ["AdaFed", "FedAvg"]
    assert {run.method for run in KEPT.only(["AdaFed"]).runs} == {"AdaFed"}
    with pytest.raises(AdafedError, match="--method is 'Nobody'; the file has 'FedAvg', 'AdaFed'"):
        KEPT.only(["Nobody"])


def test_a_method_has_one_experiment_and_one_length_in_a_file(tmp_path: Path) -> None:
    def runs(**changed: object) -> list[Run]:
        content = {"rounds": 2, "data": {"name": "synthetic", "clients": 3, "samples": 20}, "run": {"workers": 0}}
        methods = {"methods": {"FedAvg": {"rule": "fedavg"}}}
        return planned(study_from(content | methods | changed, "s"), [0], [], tmp_path)

    first = runs()
    run_all(first, lambda *_: None)
    kept = gathered("s", ("mean",), first, {})
    require_alike(kept, runs(evaluation={"improvement_every": 0}), tmp_path / "kept.json")
    for changed, told in (
        ({"rounds": 4}, "keeps 2 rounds of FedAvg, and these are 4"),
        ({"local": {"lr": 0.5}}, "keeps FedAvg with other settings than these"),
    ):
        with pytest.raises(AdafedError, match=told):
            require_alike(kept, runs(**changed), tmp_path / "kept.json")


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
