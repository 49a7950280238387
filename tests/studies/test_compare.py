"""Runs of a study: each in its place, also where another command is at work in the same places."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from adafed import AdafedError
from adafed.config.studies import study_from
from adafed.runs.summary import summarise
from adafed.studies import compare
from adafed.studies.compare import Run, begun, comparison, last_round, planned, run_all

STUDY = study_from(
    {
        "rounds": 2,
        "data": {"name": "synthetic", "clients": 4, "samples": 20, "features": 4, "classes": 2},
        "model": {"name": "logistic"},
        "methods": {"FedAvg": {"rule": "fedavg"}, "AdaFed": {"rule": "adafed"}},
    },
    "small",
)


@pytest.mark.slow
def test_jobs_leave_nothing_but_runs(tmp_path: Path) -> None:
    runs = planned(STUDY, [0], [], tmp_path)
    run_all(runs, lambda *_: None, jobs=2)
    assert [last_round(run) for run in runs] == [2, 2]
    for run in runs:
        assert [path.name for path in run.directory.parent.iterdir()] == ["seed-0"]


@pytest.mark.slow
def test_a_run_that_another_command_made_of_another_experiment_is_not_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was not there when this command looked, and is whole when its own process has ended."""
    started = compare._started

    def another(run: Run, *more: Any) -> subprocess.Popen[bytes]:
        return started(replace(run, config=run.config.changed(local={"lr": 0.5})), *more)

    monkeypatch.setattr(compare, "_started", another)
    with pytest.raises(AdafedError, match=r"holds another experiment: local\.lr was 0\.5"):
        run_all(planned(STUDY, [0], [], tmp_path)[:1], lambda *_: None, jobs=2)


def test_a_run_that_was_killed_at_its_very_start_is_none_yet(tmp_path: Path) -> None:
    (run,) = planned(STUDY, [0], [], tmp_path)[:1]
    run.directory.mkdir(parents=True)
    (run.directory / "rounds.sqlite").touch()
    assert not begun(run)
    assert last_round(run) == 0


@pytest.mark.parametrize("tail", [False, True])
def test_a_table_says_what_it_averages(tail: bool, tmp_path: Path) -> None:
    runs = planned(STUDY, [0, 1], ["run.workers=0"], tmp_path)
    run_all(runs, lambda *_: None)
    found = [(run.method, summarise(run.directory)) for run in runs]
    what = "means over the evaluations of the last tenth of the rounds" if tail else "the final model"
    assert f"{what}; 2 seeds, ± their standard deviation" in comparison("small", found, ["mean"], tail=tail).notes
    assert what in comparison("small", found[:2], ["mean"], tail=tail).notes
