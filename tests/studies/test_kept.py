"""Kept results: what goes in comes out, whole or told, also where two commands keep at once."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from tests.studies.made import KEPT, run

from adafed import simulate
from adafed.config.studies import study_from
from adafed.errors import AdafedError
from adafed.runs.summary import summarise
from adafed.studies.compare import Run, planned, run_all
from adafed.studies.kept import Kept, KeptRun, gathered, joined, keep, load, require_alike, save


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


def test_two_commands_that_keep_at_once_lose_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second to write waits, and adds to what the first wrote."""
    file = tmp_path / "deep" / "kept.json"
    first, second = (Kept(KEPT.title, KEPT.columns, runs, KEPT.told) for runs in (KEPT.runs[:2], KEPT.runs[2:]))
    other = threading.Thread(target=lambda: keep(second, file))

    def slowly(kept: Kept, path: Path) -> None:
        monkeypatch.setattr("adafed.studies.kept.save", save)
        other.start()
        other.join(0.2)  # long enough to read and write, if it did not wait
        save(kept, path)

    monkeypatch.setattr("adafed.studies.kept.save", slowly)
    keep(first, file)
    other.join()
    assert load(file) == KEPT


def test_what_was_kept_meanwhile_is_not_mixed_with_another_experiment(tmp_path: Path) -> None:
    """Two commands that began before there was a file."""
    mine, other = (replace(KEPT.runs[0], settings={"experiment": name}) for name in ("mine", "other's"))
    keep(replace(KEPT, runs=(other,)), tmp_path / "kept.json")
    with pytest.raises(AdafedError, match=r"keeps FedAvg with other settings than these; choose another file"):
        keep(replace(KEPT, runs=(replace(mine, seed=1),)), tmp_path / "kept.json")
    longer = replace(KEPT.runs[1], rounds=200)
    with pytest.raises(AdafedError, match=r"keeps 100 rounds of FedAvg, and these are 200"):
        keep(replace(KEPT, runs=(longer,)), tmp_path / "kept.json")
    assert load(tmp_path / "kept.json").runs == (other,)
