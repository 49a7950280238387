"""The command line as a user meets it: what it prints, its exit codes, Ctrl-C, and one sentence for each mistake."""

from __future__ import annotations

import csv
import os
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import psutil
import pytest
import tomli_w
import typer
from rich.console import Console
from rich.markdown import Markdown

from adafed import cli, config_from
from adafed.commands import training
from adafed.report.progress import Display
from adafed.studies.kept import load
from adafed.studies.tune import RATES

EXPERIMENT = """
rounds = 3

[partition]
name = "dirichlet"
clients = 6
beta = 1.0

[model]
name = "logistic"

[run]
workers = 0

[methods.FedAvg]
rule = "fedavg"

[methods.Ditto]
rule = "fedavg"
ditto = { lambda = 0.1 }

[profiles.short]
rounds = 2

[study]
title = "A small comparison"
seeds = [0, 1]
"""


@pytest.fixture
def experiment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "small.toml"
    path.write_text(EXPERIMENT)
    return path


def called(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """The exit code of `adafed ARGUMENTS`, in this process."""
    monkeypatch.setattr(sys, "argv", ["adafed", *arguments])
    try:
        cli.main()
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def test_run_prints_a_table_and_saves_the_run(
    experiment: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert called(monkeypatch, "run", str(experiment), "--set", "rule.gamma=4", "--out", "here") == 0
    out = capsys.readouterr().out
    assert "adafed(gamma=4.0)" in out
    assert "worst 10%" in out
    assert "saved in here" in out
    assert (Path("here") / "model.safetensors").exists()


def test_a_directory_in_use_is_not_overwritten(
    experiment: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert called(monkeypatch, "run", str(experiment), "--out", "here", "-q") == 0
    assert called(monkeypatch, "run", str(experiment), "--out", "here", "-q") == 2
    assert "adafed resume here" in capsys.readouterr().err


def test_resume_trains_to_a_later_round(
    experiment: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert called(monkeypatch, "run", str(experiment), "--out", "here", "-q") == 0
    assert called(monkeypatch, "resume", "here", "--rounds", "5") == 0
    captured = capsys.readouterr()
    assert "going on after round 3" in captured.err
    assert called(monkeypatch, "show", "here") == 0
    assert "round 5 of 5" in capsys.readouterr().out


def test_resume_goes_on_with_a_run_from_before_there_was_memory(
    experiment: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its configuration says nothing of memory; what did not exist then was off."""
    before = ["--set", "memory.rounds=0", "--set", "cohort.fraction=0.5", "--out", "here", "-q"]
    assert called(monkeypatch, "run", str(experiment), *before) == 0
    kept = tomllib.loads(Path("here/config.toml").read_text())
    kept.pop("memory")
    Path("here/config.toml").write_text(tomli_w.dumps(kept))
    assert called(monkeypatch, "resume", "here", "--rounds", "4", "-q") == 0, capsys.readouterr().err
    assert tomllib.loads(Path("here/config.toml").read_text())["memory"]["rounds"] == 0


def test_compare_makes_one_table_and_repeats_nothing(
    experiment: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert called(monkeypatch, "compare", str(experiment), "-q", "--format", "csv") == 0
    first = capsys.readouterr().out
    lines = first.splitlines()
    assert lines[0].startswith("method,personalised,seeds,mean %")
    assert [line.split(",")[:3] for line in lines[1:]] == [["FedAvg", "no", "2"], ["Ditto", "yes", "2"]]
    before = {path: path.stat().st_mtime_ns for path in Path("runs").rglob("model.safetensors")}
    assert len(before) == 4
    assert called(monkeypatch, "compare", str(experiment), "-q", "--format", "csv") == 0
    assert capsys.readouterr().out == first
    assert {path: path.stat().st_mtime_ns for path in Path("runs").rglob("model.safetensors")} == before


def test_compare_takes_rules_from_the_command_line(
    experiment: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--rule", "fedavg", "--rule", "adafed:gamma=4,hull=affine", "--seeds", "3", "-q", "-f", "markdown"]
    assert called(monkeypatch, "compare", str(experiment), *arguments) == 0
    out = capsys.readouterr().out
    assert "| adafed(gamma=4.0, hull=affine) |" in out
    assert "Ditto" not in out


@pytest.mark.slow
def test_compare_in_several_processes_gives_the_same_table(
    experiment: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert called(monkeypatch, "compare", str(experiment), "-q", "-f", "csv", "--seeds", "0") == 0
    alone = capsys.readouterr().out
    arguments = ["-q", "-f", "csv", "--seeds", "0", "--jobs", "2", "--out", "elsewhere"]
    assert called(monkeypatch, "compare", str(experiment), *arguments) == 0
    assert capsys.readouterr().out == alone


def test_a_profile_changes_the_experiment(
    experiment: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert called(monkeypatch, "run", str(experiment), "--profile", "short", "--method", "Ditto", "--out", "here") == 0
    assert called(monkeypatch, "show", "here") == 0
    assert "round 2 of 2" in capsys.readouterr().out


def test_runs_of_one_name_are_not_averaged(
    experiment: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, rate in (("one", "1"), ("other", "0.001")):
        called(monkeypatch, "run", str(experiment), "--set", f"server.rate={rate}", "--out", name, "-q", "--no-report")
    capsys.readouterr()
    assert called(monkeypatch, "show", "one", "other", "-f", "csv") == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert "one" in lines[1]
    assert "other" in lines[2]
    Path("study").mkdir()
    Path("one").rename("study/one")
    assert called(monkeypatch, "show", "study") == 2
    assert "it holds runs: name those, or look at all of them with adafed report" in capsys.readouterr().err


def test_a_run_without_test_samples_says_so(
    experiment: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = ["run", str(experiment), "--set", "split.test=0", "--out", "here", "-q", "--no-report"]
    assert called(monkeypatch, *run) == 0
    assert "no client was tested (split.test = 0)" in capsys.readouterr().err


def test_a_comparison_goes_where_the_files_name_says(
    experiment: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    experiment.write_bytes(b"\xef\xbb\xbf" + b'name = "own"\n' + experiment.read_bytes())  # as Notepad saves it
    assert called(monkeypatch, "compare", str(experiment), "-m", "FedAvg", "-q", "--no-report") == 0
    assert Path("runs/own").is_dir()


def test_a_folder_of_results_says_what_it_leaves_out(
    experiment: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for rule, file in (("fedavg", "kept/a.json"), ("term", "kept/b.json")):
        called(
            monkeypatch, "compare", str(experiment), "-r", rule, "--seeds", "0,1", "--keep", file, "-q", "--out", rule
        )
    capsys.readouterr()
    assert called(monkeypatch, "results", "kept") == 0
    captured = capsys.readouterr()
    assert "FedAvg" in captured.out
    assert "left out: b: no FedAvg" in captured.err


def test_show_lists_the_worst_clients(
    experiment: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    called(monkeypatch, "run", str(experiment), "--out", "here", "-q")
    assert called(monkeypatch, "show", "here", "--worst", "3") == 0
    assert "the 3 worst of 6 clients in round 3" in capsys.readouterr().out


def test_a_column_of_one_client_is_shown_however_many_there_are_and_refused_where_there_is_none(
    tmp_path: Path, experiment: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "many.toml").write_text(EXPERIMENT.replace("clients = 6", "clients = 25"))
    called(monkeypatch, "run", "many.toml", "--out", "many", "-q", "--no-report")
    called(monkeypatch, "run", str(experiment), "--out", "few", "-q", "--no-report")
    capsys.readouterr()
    assert called(monkeypatch, "show", "many", "--columns", "mean,client:24", "--format", "csv") == 0
    head, row = capsys.readouterr().out.splitlines()[:2]
    assert 0.0 <= float(dict(zip(head.split(","), row.split(","), strict=True))["24"]) <= 100.0
    assert called(monkeypatch, "show", "many", "--columns", "client:77") == 2
    assert "--columns names 'client:77', and no such client was tested; there are 0, 1," in capsys.readouterr().err
    assert called(monkeypatch, "show", "few", "--columns", "client:6") == 2
    assert "there are 0, 1, 2, 3, 4, 5" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    "subject", ["rules", "optimizers", "schedules", "data", "partitions", "models", "metrics", "experiments"]
)
def test_list_knows_every_subject(
    subject: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert called(monkeypatch, "list", subject) == 0
    assert len(capsys.readouterr().out.splitlines()) > 4


def test_names_with_brackets_are_printed_as_they_are(
    experiment: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    experiment.write_text(
        EXPERIMENT.replace("[methods.FedAvg]", '[methods."mean [bold] [/x]"]').replace("A small", "A [small]")
    )
    assert called(monkeypatch, "compare", str(experiment), "--profile", "short", "--out", "in [here]", "-q") == 0
    told = capsys.readouterr().out
    assert "mean [bold] [/x]" in told
    assert "A [small] comparison" in told
    assert called(monkeypatch, "run", str(experiment), "--profile", "short", "--out", "to [there]", "-q") == 0
    assert "saved in to [there]" in capsys.readouterr().out


def test_help_loses_no_words_to_markup() -> None:
    def sentences(command: Any) -> Iterator[str]:
        yield command.help or ""
        yield from (parameter.help or "" for parameter in command.params if hasattr(parameter, "help"))
        for inner in getattr(command, "commands", {}).values():
            yield from sentences(inner)

    for sentence in sentences(typer.main.get_command(cli.app)):
        printed = StringIO()
        Console(file=printed, width=1000).print(Markdown(sentence), soft_wrap=True)
        assert printed.getvalue().split() == sentence.replace("`", "").split()


def test_the_help_of_tune_has_the_rates_that_it_tries() -> None:
    told = {one.name: one.help for one in typer.main.get_command(cli.app).commands["tune"].params}  # type: ignore[attr-defined]
    assert f"Default: {','.join(f'{rate:g}' for rate in RATES)}." in told["rates"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["run", "missing.toml"], "missing.toml cannot be read"),
        (["run", "small.toml", "--set", "rule.gama=1"], "rule.gama is unknown; rule.name = 'adafed' has gamma"),
        (["run", "small.toml", "--set", "rule.name=fairest"], "rule.name = 'fairest' is unknown; there are adafed"),
        (["run", "small.toml", "--set", "local.lr=-1"], "local.lr = -1: it must be greater than 0"),
        (["run", "small.toml", "--set", "nonsense"], "is not of the form section.key=value"),
        (["run", "small.toml", "--set", "data.name=mnist3"], "data.name = 'mnist3' is unknown; there are cifar10"),
        (["run", "small.toml", "--set", "model.name=gpt"], "gpt"),
        (["run", "small.toml", "--method", "AFL"], "has no method 'AFL'; it has 'FedAvg', 'Ditto'"),
        (["run", "small.toml", "--profile", "long"], "has no profile 'long'; it has 'short'"),
        (["compare", "small.toml", "--method", "AFL"], "--method is 'AFL'; the experiment has 'FedAvg', 'Ditto'"),
        (["compare", "small.toml", "--seeds", "a,b"], "--seeds is 'a,b'"),
        (["compare", "small.toml", "--seeds", "0,0"], "--seeds is '0,0'; they must be different"),
        (["compare", "small.toml", "--set", "seed=5"], "--set seed=5 is at odds with seed 0"),
        (["compare", "small.toml", "--rule", "adafed:gamma"], "--rule 'adafed:gamma': 'gamma' is not of the form"),
        (
            ["compare", "small.toml", "--rule", "adafed:gamma=1,gamma=2"],
            "--rule 'adafed:gamma=1,gamma=2' gives gamma twice",
        ),
        (
            ["tune", "small.toml", "--rule", "adafed:gamma=2"],
            "--rule is 'adafed:gamma=2'; give its name, and what to try",
        ),
        (
            ["tune", "small.toml", "--memories", "sometimes"],
            "--memories has 'sometimes'; give numbers of rounds, or all",
        ),
        (["compare", "small.toml", "--keep", "small.toml"], "small.toml holds no kept results"),
        (["compare", "small.toml", "--keep", "small.toml/x.json"], "small.toml/x.json could not be written"),
        (["compare", "small.toml", "--jobs", "2", "--out", "small.toml"], "could not be written: Not a directory"),
        (["run", "dem"], "no packaged experiment is called so; there are attack, cifar10-1"),
        (["flower", "new", "app", "dem"], "did you mean demo?"),
        (["resume", "nowhere"], "nowhere is not a run directory"),
        (["show", "nowhere", "--columns", "mean,speed"], "--columns names 'speed'; there are mean"),
        (["show", "nowhere", "--columns", "nowhere:gap"], "--columns = 'nowhere:gap': there is no module"),
        (["show", "nowhere"], "nowhere is not a run directory"),
        (["list", "colours"], "there is no list of 'colours'"),
        (["run", "small.toml", "--nodes", "3"], "--nodes 3 has no meaning without --engine flower"),
        (
            ["flower", "new", "app", "--method", "AdaFed"],
            "--method is 'AdaFed', and without an experiment there are no ",
        ),
        (["flower", "new", "small.toml"], "small.toml could not be written: Not a directory"),
        (["flower", "new", "small.toml/x"], "could not be written: Not a directory"),
        (["flower", "certificates", "new", "--host", ""], "--host is ''; it must be an address or a name"),
        (["flower", "certificates", "new", "--host", "a.example.org:90"], "--host is 'a.example.org:90'"),
        (["flower", "certificates", "new", "--host", "cafe:9092"], "--host is 'cafe:9092'"),
        (["flower", "certificates", "new", "--host", "::::"], "--host is '::::'"),
        (["flower", "certificates", "small.toml"], "small.toml could not be written: Not a directory"),
        (["reproduce", "figure-hull", "--out", "small.toml"], "could not be written: Not a directory"),
        (["reproduce", "fashion", "--rates", "5"], "--rates is 5 and belongs to --tune, which fashion is not here"),
        (
            ["reproduce", "fashion", "--tune", "AdaFed", "--keep", "x"],
            "--keep is x and belongs to a table, which fashion",
        ),
    ],
)
def test_a_mistake_is_told_in_one_sentence(
    arguments: list[str],
    told: str,
    experiment: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert called(monkeypatch, *arguments) == 2
    captured = capsys.readouterr()
    assert told in captured.err
    assert captured.err.startswith("adafed: ")
    assert captured.err.count("\n") == 1
    assert "Traceback" not in captured.err


def test_kept_results_are_told(
    experiment: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = experiment.with_name("kept.json")
    arguments = ["--rule", "fedavg", "--rule", "adafed", "--seeds", "0,1", "-q", "--keep", str(kept)]
    assert called(monkeypatch, "compare", str(experiment), *arguments, "--set", "rounds=3") == 0
    capsys.readouterr()
    assert called(monkeypatch, "results", str(kept), "-f", "markdown", "--reach", "mean=1") == 0
    out = capsys.readouterr().out
    assert "difference to FedAvg" in out or "difference to fedavg" in out
    assert "mean % ≥ 1" in out
    assert called(monkeypatch, "results", str(kept), "--reach", "speed=1") == 2
    assert "--reach is 'speed=1'" in capsys.readouterr().err
    wrongs = (["--reach", "angle=3"], ["--against", "Nobody"], ["--columns", "mean,angle"], ["--method", "Nobody"])
    for wrong in wrongs:
        assert called(monkeypatch, "results", str(kept), *wrong) == 2
        assert f"{wrong[0]} is '{wrong[1]}'" in capsys.readouterr().err
    assert called(monkeypatch, "results", str(kept), "--columns", "mean, std") == 0
    capsys.readouterr()
    only = next(iter(load(kept).methods()))
    stem = experiment.with_name("by-round")
    assert called(monkeypatch, "results", str(kept), "-m", only, "--columns", "mean,std", "--figure", str(stem)) == 0
    out = capsys.readouterr().out
    assert "adafed" not in out.split("by-round")[0].lower()  # the other method is in no table
    assert all(stem.with_suffix(form).stat().st_size for form in (".png", ".svg", ".pdf"))


def test_the_users_own_measure_is_a_column_everywhere(
    experiment: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(experiment.parent)
    experiment.with_name("own_columns.py").write_text(
        "from adafed.metrics import Metric\n"
        "def gap(e):\n    return e.accuracies.max() - e.accuracies.min()\n"
        "points = Metric(gap, 'gap in points', direction=-1, percent=True)\n"
        "def fails(e):\n    raise KeyError('x')\n"
    )
    experiment.write_text(EXPERIMENT + 'columns = ["mean", "own_columns:gap", "own_columns:points", "client:0"]\n')
    head = ["mean %", "gap", "gap in points", "0"]
    assert called(monkeypatch, "run", str(experiment), "--profile", "short", "--out", "here", "-q") == 0
    assert [line.split() for line in capsys.readouterr().out.splitlines() if "mean %" in line] == [
        ["method", *" ".join(head).split()]
    ]
    arguments = ["--profile", "short", "--seeds", "0", "-q", "-f", "csv", "--keep", "kept.json"]
    assert called(monkeypatch, "compare", str(experiment), *arguments) == 0
    first, row, _ = (line.split(",") for line in capsys.readouterr().out.splitlines())
    assert first[3::2] == head
    assert float(row[7]) == pytest.approx(100 * float(row[5]))
    assert called(monkeypatch, "show", "here", "-f", "csv", "--columns", "own_columns:points, std") == 0
    assert capsys.readouterr().out.splitlines()[0].split(",")[3::2] == ["gap in points", "σ_a"]
    reach = ["--reach", "own_columns:points=0", "-f", "markdown"]
    assert called(monkeypatch, "results", "kept.json", "--columns", "mean,own_columns:points", *reach) == 0
    assert "| method | mean % | gap in points |" in capsys.readouterr().out
    assert called(monkeypatch, "show", "here", "--columns", "own_columns:fails") == 2
    assert capsys.readouterr().err == "adafed: the metric own_columns:fails raised KeyError('x')\n"


def test_packaged_experiments_go_by_their_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    small = ["--set", "rounds=2", "--set", "run.workers=0", "-q"]
    assert called(monkeypatch, "run", "demo", "--method", "FedAvg", *small) == 0
    assert "saved in runs/demo/FedAvg-seed-0" in capsys.readouterr().out
    assert called(monkeypatch, "compare", "demo", "--seeds", "0", *small) == 0
    assert "Digits by label shards, 20 clients" in capsys.readouterr().out
    assert called(monkeypatch, "tune", "demo", "--rule", "fedavg", "--rates", "1", *small) == 0
    assert called(monkeypatch, "flower", "new", "app", "demo", "--method", "AdaFed, memory") == 0
    assert 'name = "demo"' in Path("app/experiment.toml").read_text()


def test_tune_searches_the_grid_times_the_rates_on_validation(
    experiment: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["tune", str(experiment), "--rule", "term", "--rates", "0.5,1", "-q", "-f", "csv", "--seeds", "7"]
    assert called(monkeypatch, *arguments, "--set", "rounds=2") == 0
    out = capsys.readouterr().out
    trials = [line for line in out.splitlines() if "rule.t=" in line and not line.startswith("--set")]
    assert len(trials) == 20  # five tilts times two rates times two momenta
    assert sum("◀" in line for line in trials) == 1
    assert out.splitlines()[-1].startswith("--set rule.name=term  --set rule.t=")


def test_a_search_that_is_stopped_says_how_to_go_on(
    experiment: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("adafed.studies.tune.tune", interrupted)
    assert called(monkeypatch, "tune", str(experiment), "--rule", "term", "-q") == 130
    assert "stopped; the same command goes on where it was" in capsys.readouterr().err


def test_tune_with_a_grid_of_ones_own(
    experiment: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["tune", str(experiment), "--rule", "term", "--rates", "1", "-q", "-f", "csv", "--momenta", "0"]
    assert called(monkeypatch, *arguments, "--grid", "t=0.5,3") == 0
    printed = capsys.readouterr().out
    assert "rule.t=0.5" in printed
    assert "rule.t=3" in printed
    assert "rule.t=2" not in printed
    assert "--set rule.name=term  --set rule.t=" in printed
    assert called(monkeypatch, *arguments, "--grid", "gamma=1") == 2
    assert "--grid gamma=1: it must be OPTION=VALUES, and rule term has t" in capsys.readouterr().err


def test_tune_with_two_objectives_marks_the_pareto_front(
    experiment: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["tune", str(experiment), "--rule", "fedavg", "--rates", "0.01,0.3,1,3", "-q", "-f", "csv"]
    assert called(monkeypatch, *arguments, "--objective", "both", "--set", "rounds=2") == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if "rate=" in line and not line.startswith("--set")]
    rows = list(csv.reader(lines))
    assert len(rows) == 8  # four rates times two momenta
    scores = [(float(fields[3]), float(fields[7]), "◀" in fields[0]) for fields in rows]
    assert any(chosen for *_, chosen in scores)
    for mean, worst, chosen in scores:
        beaten = any(m >= mean and w >= worst and (m, w) != (mean, worst) for m, w, _ in scores)
        assert chosen != beaten


def test_tuning_without_validation_is_refused(
    experiment: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert called(monkeypatch, "tune", str(experiment), "--set", "split.validation=0", "-q") == 2
    assert "split.validation = 0 leaves nothing to tune on" in capsys.readouterr().err


@pytest.mark.slow
def test_ctrl_c_ends_the_round_and_tells_how_to_go_on(experiment: Path, patience: float) -> None:
    command = [sys.executable, "-m", "adafed", "run", str(experiment), "--out", "here", "--set", "rounds=100000"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=os.environ, text=True)
    try:
        deadline = time.monotonic() + patience
        while not list(Path("here/checkpoints").glob("round-*")) and time.monotonic() < deadline:
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=patience)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130
    assert "go on with: adafed resume here" in told
    assert "Traceback" not in told


@pytest.mark.slow
@pytest.mark.parametrize(("how", "children_seen"), [(signal.SIGTERM, 1), (signal.SIGKILL, 2)])
def test_a_comparison_that_ends_takes_its_runs_with_it(
    how: signal.Signals, children_seen: int, experiment: Path, patience: float
) -> None:
    """At whatever moment: with the first child just started, it may not even be noted yet."""
    command = [sys.executable, "-m", "adafed", "compare", str(experiment), "--jobs", "2", "--set", "rounds=100000"]
    with subprocess.Popen([*command, "-q"], stderr=subprocess.DEVNULL) as process:
        until = time.monotonic() + patience
        while len(children := psutil.Process(process.pid).children()) < children_seen and time.monotonic() < until:
            time.sleep(0.001)
        assert len(children) >= children_seen
        process.send_signal(how)
        assert process.wait(patience) == (128 + how if how is signal.SIGTERM else -how)
    assert not psutil.wait_procs(children, timeout=patience)[1]
    left = [one for one in psutil.process_iter() if str(experiment.parent) in _command_line(one)]
    assert not psutil.wait_procs(left, timeout=patience)[1]


def _command_line(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
        return ""


def test_the_demo_ends_with_a_fairness_table_and_a_page(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "adafed", "demo", "-q"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert "FedAvg" in done.stdout
    assert "AdaFed" in done.stdout
    assert "worst 10%" in done.stdout
    assert "page: adafed-demo.html" in done.stderr
    text = (tmp_path / "adafed-demo.html").read_text()
    assert "Digits by label shards, 20 clients" in text
    assert "/tmp/adafed-demo" not in text  # its runs are not kept


# The page


def test_commands_end_with_a_page_and_say_where(
    experiment: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert called(monkeypatch, "run", str(experiment), "--out", "here", "-q") == 0
    assert "page: here/report.html" in capsys.readouterr().err
    assert "Fairness report" in Path("here/report.html").read_text()
    assert called(monkeypatch, "compare", str(experiment), "--out", "study", "-q", "-f", "csv") == 0
    told = capsys.readouterr()
    assert "page" not in told.out  # which may be read by a program
    assert "page: study/report.html" in told.err
    text = Path("study/report.html").read_text()
    assert "A small comparison" in text
    Path("study/report.html").unlink()
    assert called(monkeypatch, "report", "study") == 0
    assert Path("study/report.html").read_text() == text
    for command in (["compare", str(experiment), "--out", "study"], ["resume", "here"]):
        for page in ("study/report.html", "here/report.html"):
            Path(page).unlink(missing_ok=True)
        assert called(monkeypatch, *command, "-q", "--no-report") == 0
        assert not Path("study/report.html").exists()
        assert not Path("here/report.html").exists()


def test_report_writes_pages_tables_and_figures(
    experiment: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert called(monkeypatch, "compare", str(experiment), "--out", "study", "-q", "--keep", "kept.json") == 0
    arguments = [
        "--out",
        "page.html",
        "--tables",
        "t",
        "--figures",
        "f",
        "--tail",
        "--against",
        "Ditto",
        "--title",
        "<b>Mine</b>",
    ]
    assert called(monkeypatch, "report", "study", *arguments) == 0
    text = Path("page.html").read_text()
    assert "Differences to Ditto" in text
    assert "&lt;b&gt;Mine&lt;/b&gt;" in text
    assert Path("t/summary.tex").exists()
    assert Path("f/worst.pdf").exists()
    assert called(monkeypatch, "report", "kept.json") == 0
    assert Path("kept.html").exists()
    assert called(monkeypatch, "report", "study", "--columns", "mean,gini", "--out", "two.html") == 0
    assert '<th scope="col">Gini</th>' in Path("two.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["nowhere"], "nowhere is not there"),
        (["."], "holds no run"),
        (["small.toml"], "holds no kept results"),
        (["study", "--against", "nobody"], "--against is 'nobody'"),
        (["study", "--columns", "nothing"], "--columns names 'nothing'"),
        (["study", "--watch", "--out", "x.html"], "--watch writes no files"),
        (["study", "--out", "study"], "study"),
    ],
)
def test_a_mistake_in_report_is_one_sentence(
    arguments: list[str],
    sentence: str,
    experiment: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if arguments[0] == "study":
        assert called(monkeypatch, "compare", str(experiment), "--out", "study", "-q", "--set", "rounds=1") == 0
        capsys.readouterr()
    assert called(monkeypatch, "report", *arguments) == 2
    told = capsys.readouterr().err
    assert sentence in told
    assert told.startswith("adafed: ")
    assert told.count("\n") == 1


def test_a_page_that_cannot_be_written_costs_no_run(
    experiment: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (Path("here") / "report.html" / "in-the-way").mkdir(parents=True)
    assert called(monkeypatch, "run", str(experiment), "--out", "here", "-q") == 0
    assert "no page was written" in capsys.readouterr().err


def test_ctrl_c_in_the_last_round_still_leaves_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Stopped:
        def __init__(self, quiet: bool) -> None:
            self.display = Display(Console(quiet=True), quiet=True)

        def __enter__(self) -> tuple[Display, list[int]]:
            return self.display, [2]

        def __exit__(self, *_: object) -> None:
            pass

    monkeypatch.setattr(training, "Progress", Stopped)
    data = {"name": "synthetic", "clients": 2, "samples": 20, "features": 4, "classes": 2}
    config = config_from({"rounds": 1, "data": data, "model": {"name": "logistic"}, "run": {"workers": 0}})
    training._train(config, tmp_path / "run", quiet=True)
    assert (tmp_path / "run" / "model.safetensors").exists()
