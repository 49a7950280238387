"""Every experiment starts, trains three rounds of every method and prints its table, on files in published formats."""

from __future__ import annotations

import csv
import io
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from adafed import paper
from adafed.cli import app
from adafed.errors import AdafedError
from adafed.paper.reproduce import Request, planned_for, targets
from adafed.runs.summary import summarise
from adafed.studies.compare import run_all

NAMES = [name for name, target in targets().items() if not target.sweep]


def table(request: Request) -> str:
    plan = planned_for(request)
    run_all(plan.runs, lambda run, round, record: None)
    (found,) = plan.tables()
    return found.csv()


def rows(text: str) -> Iterator[list[str]]:
    yield from list(csv.reader(io.StringIO(text)))[1:]


def smoke(name: str, out: Path, **more: object) -> Request:
    return Request(name, "smoke", out=out, verify=False, settings=["run.workers=0"], **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", NAMES)
def test_three_rounds_of_every_method_and_a_table(name: str, data: Path, tmp_path: Path) -> None:
    request = smoke(name, tmp_path)
    plan = planned_for(request)
    text = table(request)
    found = {row[0]: row for row in rows(text)}
    for run in plan.runs:
        assert summarise(run.directory).rounds == 3
        assert all(cell for cell in found[run.method][3::2]), "every column has a number"
    printed = targets()[name].printed
    assert printed is not None
    beside = {plan.parts[0].study.paper.get(run.method, run.method) for run in plan.runs}
    assert len(beside & printed.rows.keys()) >= len(beside) - 1
    for method in beside & printed.rows.keys():
        assert f"{method}, paper" in found
        assert float(found[f"{method}, paper"][3]) == float(printed.rows[method]["mean"])


def test_the_same_command_twice_gives_the_same_table(data: Path, tmp_path: Path) -> None:
    first, second = (table(smoke("femnist-original", tmp_path / where)) for where in "ab")
    again = table(smoke("femnist-original", tmp_path / "a"))
    assert first == second == again


def test_runs_of_another_experiment_are_not_taken_for_ones_own(data: Path, tmp_path: Path) -> None:
    table(smoke("fashion", tmp_path, methods=["FedAvg"]))
    other = Request("fashion", "smoke", ["FedAvg"], out=tmp_path, verify=False, settings=["local.lr=0.2"])
    with pytest.raises(AdafedError, match=r"local\.lr was 0\.1 and is now 0\.2"):
        table(other)
    with pytest.raises(AdafedError, match="holds 3 rounds, more than the 2 asked for"):
        table(smoke("fashion", tmp_path, methods=["FedAvg"], rounds=2))


def test_a_sweep_over_gamma(data: Path, tmp_path: Path) -> None:
    found = {row[0] for row in rows(table(smoke("fashion", tmp_path, sweep=True)))}
    for gamma in ("0", "0.01", "0.1", "1", "5", "10"):
        wanted = {f"AdaFed, gamma={gamma}", f"AdaFed as printed, gamma={gamma}", f"gamma={gamma}, paper"}
        assert wanted <= found


def test_untrusted_numbers_are_marked_and_explained(data: Path, tmp_path: Path) -> None:
    arguments = ["reproduce", "fashion", "--profile", "smoke", "--no-verify", "--out", str(tmp_path), "--workers", "0"]
    result = CliRunner().invoke(app, [*arguments, "-q", "--format", "markdown", "--method", "AdaFed"])
    assert result.exit_code == 0, result.output
    assert "2.12†" in result.stdout
    assert "† AdaFed, σ_a: the three classes have a sigma of at least 5.92, printed 2.12" in result.stdout
    assert "smoke profile: rounds = 3" in result.stdout
    assert "FedAvg" not in result.stdout


def test_the_papers_grid_can_be_searched(data: Path, tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    arguments = ["reproduce", "femnist-original", "--profile", "smoke", "--out", str(tmp_path), "--workers", "0"]
    server = ["--rates", "1", "--momenta", "0", "--memories", "0"]  # one point, so that the grid is the paper's alone
    result = CliRunner().invoke(app, [*arguments, "-q", "--rounds", "1", "--tune", "Ditto", *server, "-f", "csv"])
    assert result.exit_code == 0, result.output
    assert "--set ditto.lambda=" in result.stdout
    for value in paper.grid("Ditto")["lambda"]:
        assert f"ditto.lambda={value:g}, " in result.stdout


@pytest.mark.slow
def test_a_reproduction_killed_in_the_middle_goes_on_where_it_was(data: Path, tmp_path: Path, patience: float) -> None:
    out = tmp_path / "killed"
    arguments = ["reproduce", "fashion", "--profile", "smoke", "--no-verify", "--rounds", "40", "--workers", "0", "-q"]
    command = [sys.executable, "-m", "adafed", *arguments, "--out", str(out)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    second = out / "fashion-smoke" / "q-FFL" / "seed-0" / "rounds.sqlite"
    until = time.monotonic() + patience
    while not second.exists() and time.monotonic() < until:
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    first = out / "fashion-smoke" / "FedAvg" / "seed-0" / "model.safetensors"
    done = first.stat().st_mtime_ns
    resumed = table(smoke("fashion", out, rounds=40))
    assert first.stat().st_mtime_ns == done, "what was finished is not run again"
    assert resumed == table(smoke("fashion", tmp_path / "whole", rounds=40))
