"""Several methods, several seeds, one table: runs what is not there yet and reads back what is.

Every run has a directory of its own below the study's, so an interrupted comparison goes on where it was.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import current_thread, main_thread

from safetensors import SafetensorError, safe_open

from adafed.config.configuration import Config, config_from
from adafed.config.loading import load_kept
from adafed.config.merging import merged, parse_settings
from adafed.config.studies import Study
from adafed.engines.local.simulate import simulate
from adafed.errors import AdafedError
from adafed.files import full_disk_in_a_sentence
from adafed.metrics import metric
from adafed.report.tables import Column, Row, Table, cells, column
from adafed.rounds.cohort import BY_LOSS, OTHER_COHORTS
from adafed.rounds.records import RoundRecord
from adafed.runs.description import require_same
from adafed.runs.store import Store
from adafed.runs.summary import RunSummary
from adafed.server_rules import rules
from adafed.studies.lifeline import Lifeline

Watch = Callable[["Run", int, RoundRecord | None], None]
POLL = 0.5  # seconds between looks at runs in other processes


@dataclass(frozen=True)
class Run:
    """One method at one seed."""

    method: str
    config: Config
    directory: Path


def planned(study: Study, seeds: Sequence[int], settings: Iterable[str], out: Path) -> list[Run]:
    """All runs of a study, seed by seed, so that a table is complete for the first seeds early."""
    settings = list(settings)
    folders: dict[str, str] = {}
    for method in study.methods:
        other = folders.setdefault(_file_name(method), method)
        if other != method:
            raise AdafedError(
                f"methods {other!r} and {method!r} would share the folder {_file_name(method)}; rename one"
            )
    return [
        Run(method, study.config(method, seed, settings), out / _file_name(method) / f"seed-{seed}")
        for seed in seeds
        for method in study.methods
    ]


def method_from(text: str) -> tuple[str, dict[str, object]]:
    """`adafed`, `adafed:gamma=5,hull=simplex` or `mine:Rule:times=3` from the command line, as a method of its own."""
    name, _, options = text.partition(":")
    if name not in rules() and options and "=" not in options.split(":")[0]:  # module:attribute
        attribute, _, options = options.partition(":")
        name = f"{name}:{attribute}"
    given = [option.strip() for option in options.split(",") if option.strip()]
    if wrong := [option for option in given if "=" not in option]:
        raise AdafedError(f"--rule {text!r}: {wrong[0]!r} is not of the form option=value, as in adafed:gamma=5")
    keys = [option.partition("=")[0].strip() for option in given]
    if twice := [key for key in keys if keys.count(key) > 1]:
        raise AdafedError(f"--rule {text!r} gives {twice[0]} twice; give it once")
    settings = [f"rule.{option}" for option in given]
    over = merged({"rule": {"name": name}}, parse_settings(settings))
    return config_from(over).label, over


def run_all(runs: Sequence[Run], watch: Watch, *, jobs: int = 1) -> None:
    """Do what is missing. `watch(run, round, record)` is called after every round; with several jobs, now and then."""
    waiting = [run for run in runs if not finished(run)]
    if jobs <= 1:
        for run in waiting:
            for record in simulate(run.config, directory=run.directory):
                watch(run, record.round, record)
        return
    running: list[tuple[Run, subprocess.Popen[bytes]]] = []
    with _ended_by_sigterm():
        try:
            with Lifeline() as lifeline:  # a child that is started and not noted yet ends with it too
                _in_processes(waiting, running, watch, jobs, lifeline)
        finally:
            for run, process in running:
                process.wait()
                _forget_files(run)


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """SIGTERM ends this process as Ctrl-C does, so that it takes its children with it."""
    if current_thread() is not main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _in_processes(
    waiting: list[Run],
    running: list[tuple[Run, subprocess.Popen[bytes]]],
    watch: Watch,
    jobs: int,
    lifeline: Lifeline,
) -> None:
    while waiting or running:
        while waiting and len(running) < jobs:
            run = waiting.pop(0)
            running.append((run, _started(run, lifeline, jobs)))
        time.sleep(POLL)
        for run, process in list(running):
            watch(run, last_round(run), None)
            if process.poll() is not None:
                running.remove((run, process))
                told = _log(run).read_text(errors="replace").strip().removeprefix("adafed: ")
                _forget_files(run)
                if process.returncode:
                    raise AdafedError(f"{run.method}, seed {run.config.seed}: {told or 'the run failed'}")
                finished(run)  # another command may have begun another experiment there meanwhile


def finished(run: Run) -> bool:
    """Whether there is nothing left to train. What another experiment left in its place is not taken for it."""
    last = last_round(run)
    if last == 0:
        return False
    require_same(run.directory, load_kept(run.directory), run.config)
    if last > run.config.rounds:
        raise AdafedError(f"{run.directory} holds {last} rounds, more than the {run.config.rounds} asked for; "
                          "choose another directory")  # fmt: skip
    if last < run.config.rounds:
        return False
    # The final model is written last of all. Where somebody removed what only training needs, the rows are enough.
    return _final_round(run) == last or not any(run.directory.glob("checkpoints/*"))


def _final_round(run: Run) -> int:
    """Of the final model; 0 where it is not there."""
    try:
        with safe_open(run.directory / "model.safetensors", framework="pt") as content:
            return int(content.metadata()["round"])
    except (OSError, SafetensorError, TypeError, KeyError, ValueError):
        return 0


def begun(run: Run) -> bool:
    """Whether there is something to read. A run that was killed at its very start has rows, none, and nothing that says
    of what."""
    return all((run.directory / name).exists() for name in ("rounds.sqlite", "config.toml"))


def last_round(run: Run) -> int:
    if not begun(run):
        return 0
    try:
        store = Store(run.directory / "rounds.sqlite", read_only=True)
    except AdafedError:  # being made at this moment; what is wrong with it, the run itself will say
        return 0
    try:
        return store.last_round()
    finally:
        store.close()


def _started(run: Run, lifeline: Lifeline, jobs: int) -> subprocess.Popen[bytes]:
    """A run in a process of its own, which does its clients' work itself; what it complains of goes to a log."""
    # A step of the server is elementwise, so threads change no bit of it; but where every core has a run, a second
    # thread of one waits for a core that another has, and the first spins until it gets it.
    threads = {"OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // jobs))}
    config = _given(run)
    with full_disk_in_a_sentence(config):
        run.directory.parent.mkdir(parents=True, exist_ok=True)
        config.write_text(run.config.changed(run={"workers": 0}).to_toml())
    command = [sys.executable, "-m", "adafed", "run", str(config), "--out", str(run.directory), "--quiet", "--continue",
               "--no-report"]  # fmt: skip
    with _log(run).open("wb") as log:
        return subprocess.Popen(
            command,
            stdout=subprocess.DEVNULL,
            stderr=log,
            start_new_session=True,
            pass_fds=[lifeline.descriptor],
            env=threads | os.environ | lifeline.environment,
        )


def _given(run: Run) -> Path:
    """The configuration for a process of its own. Another command's for the same place has another name."""
    return run.directory.parent / f".{run.directory.name}.{os.getpid()}.toml"


def _log(run: Run) -> Path:
    return _given(run).with_suffix(".log")


def _forget_files(run: Run) -> None:
    for file in (_given(run), _log(run)):
        file.unlink(missing_ok=True)


def comparison(
    title: str,
    found: Sequence[tuple[str, RunSummary]],
    columns: Sequence[str],
    *,
    tail: bool = False,
    notes: Sequence[str] = (),
) -> Table:
    """Rows are methods, in the order of their first run; cells are means over their seeds."""
    methods: dict[str, list[RunSummary]] = {}
    for method, one in found:
        methods.setdefault(method, []).append(one)
    rows = []
    for method, runs in methods.items():
        numbers = [[(one.tail if tail else one.final).get(key) for key in columns] for one in runs]
        rows.append(Row(method, cells(numbers), runs[0].personalised))
    told = list(notes)
    seeds = max((len(runs) for runs in methods.values()), default=0)
    what = "means over the evaluations of the last tenth of the rounds" if tail else "the final model"
    told.append(f"{what}; {seeds} seeds, ± their standard deviation" if seeds > 1 else what)
    if "floor" in columns and "excess" in columns:
        told.append("chance: the part of σ_a that the clients' few test samples explain; left: what remains of σ_a")
    if any(metric(key).percent for key in columns):
        told.append("accuracies, σ_a and ρ in percent")
    if len(methods) > 1 and any(one.config.cohort.sampling in BY_LOSS for _, one in found):
        told.append(OTHER_COHORTS)
    short = [(m, one) for m, one in found if not one.complete]
    told += [f"{m}, seed {one.config.seed}: only {one.rounds} of {one.config.rounds} rounds" for m, one in short]
    picked: tuple[Column, ...] = tuple(column(key) for key in columns)
    return Table(title, picked, tuple(rows), tuple(told))


def _file_name(method: str) -> str:
    return re.sub(r"[^\w.+=-]+", "-", method).strip("-.") or "method"
