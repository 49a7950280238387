"""One run: train it, go on with it, look at it."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from adafed.commands.report import PAGE, NoReport, written
from adafed.commands.shared import (
    MEASURES,
    Experiment,
    Form,
    Printed,
    Profile,
    Progress,
    Quiet,
    Settings,
    Workers,
    console,
    errors,
    measures_from,
    print_table,
    workers_setting,
)
from adafed.errors import AdafedError

if TYPE_CHECKING:
    from adafed.config.configuration import Config


class Engine(StrEnum):
    """Where clients train."""

    local = "local"
    flower = "flower"


def run(
    experiment: Experiment,
    settings: Settings = None,
    method: Annotated[str | None, typer.Option(help="One of the experiment's methods.")] = None,
    profile: Profile = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Instead of the experiment's seed.")] = None,
    out: Annotated[Path | None, typer.Option(help="Run directory. Default: runs/NAME/METHOD-seed-N.")] = None,
    workers: Workers = None,
    quiet: Quiet = False,
    go_on: Annotated[
        bool, typer.Option("--continue", help="Go on with the run directory if it is there, instead of refusing.")
    ] = False,
    engine: Annotated[Engine, typer.Option(help="The simulator of this package, or Flower's, on Ray.")] = Engine.local,
    nodes: Annotated[int | None, typer.Option(min=1, help="Flower's nodes. Default: one a client.")] = None,
    no_report: NoReport = False,
) -> None:
    """Train one experiment and print its fairness.

    Everything is saved after every round. Ctrl-C stops after the round under way; `adafed resume` goes on,
    to the same bits as if it had never stopped.
    """
    from adafed.config.studies import load_study

    study = load_study(experiment, profile)
    config = study.config(method, seed, [*(settings or []), *workers_setting(workers)])
    directory = out or Path("runs") / config.name / f"{(method or config.label).replace('/', '-')}-seed-{config.seed}"
    _require_flower(nodes, engine)
    if (directory / "run.json").exists() and (directory / "config.toml").exists() and not go_on:
        raise AdafedError(
            f"{directory} holds a run already; adafed resume {quote(str(directory))}, or choose another with --out"
        )
    if engine is Engine.flower:
        _train_on_flower(config, directory, nodes, quiet)
    else:
        _train(config, directory, quiet)
    _finished(config, directory, study.columns, no_report)


def resume(
    directory: Annotated[Path, typer.Argument(help="The run directory.")],
    rounds: Annotated[
        int | None, typer.Option(min=1, help="Train to this round, instead of the experiment's last.")
    ] = None,
    workers: Workers = None,
    quiet: Quiet = False,
    nodes: Annotated[int | None, typer.Option(min=1, help="Flower's nodes. Default: one a client.")] = None,
    no_report: NoReport = False,
) -> None:
    """Go on with a run that was stopped or killed, on the engine it was begun with."""
    from adafed.config.loading import load_kept
    from adafed.config.merging import parse_settings
    from adafed.metrics import USUAL
    from adafed.runs.description import begun_with

    if not (directory / "config.toml").exists():
        raise AdafedError(f"{directory} is not a run directory: it has no config.toml")
    settings = workers_setting(workers) + ([] if rounds is None else [f"rounds={rounds}"])
    config = load_kept(directory).changed(**parse_settings(settings))
    engine = Engine(begun_with(directory))
    _require_flower(nodes, engine)
    if engine is Engine.flower:
        _train_on_flower(config, directory, nodes, quiet)
    else:
        _train(config, directory, quiet)
    _finished(config, directory, USUAL, no_report)


def _require_flower(nodes: int | None, engine: Engine) -> None:
    if nodes is not None and engine is not Engine.flower:
        raise AdafedError(f"--nodes {nodes} has no meaning without --engine flower; leave it out")


def show(
    directories: Annotated[list[Path], typer.Argument(metavar="DIR...", help="Run directories.")],
    part: Annotated[str, typer.Option(help="test or validation.")] = "test",
    worst: Annotated[int, typer.Option(min=0, help="How many of the worst clients to list, for one run.")] = 10,
    tail: Annotated[bool, typer.Option("--tail", help="Average over the last tenth of the rounds.")] = False,
    columns: Annotated[str | None, typer.Option(help=MEASURES)] = None,
    form: Printed = Form.table,
) -> None:
    """Look at runs: one in detail with its worst clients, or several in one table."""
    from adafed.metrics import METRICS, USUAL
    from adafed.report.clients import worst_clients
    from adafed.runs.summary import require_clients, summarise
    from adafed.studies.compare import comparison

    if part not in ("test", "validation"):
        raise AdafedError(f"--part is {part!r}; it must be test or validation")
    directories = _without_repeats(directories)
    alone = len(directories) == 1
    usual = tuple(METRICS) if alone and form is not Form.table else USUAL
    chosen = usual if columns is None else measures_from(columns)
    found = [summarise(directory, part, columns=chosen) for directory in directories]
    require_clients(found, chosen)
    names = [one.label if alone else f"{one.label}, seed {one.config.seed}" for one in found]
    # Runs of one name are not seeds of one method: each has its own row.
    names = [f"{name}, {one.path}" if names.count(name) > 1 else name for name, one in zip(names, found, strict=True)]
    title = f"{found[0].path}: round {found[0].rounds} of {found[0].config.rounds}" if alone else ""
    print_table(comparison(title, list(zip(names, found, strict=True)), chosen, tail=tail), form)
    if alone and worst and form is Form.table:
        print_table(worst_clients(directories[0], worst, part), form)


def _without_repeats(directories: Sequence[Path]) -> list[Path]:
    """A run that is named twice, however it is spelled, is no second seed."""
    kept: dict[Path, Path] = {}
    for directory in directories:
        place = directory.resolve()
        if place in kept:
            errors.print(f"{directory} repeats {kept[place]} and is left out", soft_wrap=True)
        else:
            kept[place] = directory
    return list(kept.values())


def _train(config: Config, directory: Path, quiet: bool) -> None:
    """One run to its end or to Ctrl-C."""
    from adafed.engines.local.simulate import Simulation

    name = f"{config.label}, seed {config.seed}"
    with Progress(quiet) as (display, stopped), Simulation(config, directory=directory) as simulation:
        if simulation.state.round:
            errors.print(f"going on after round {simulation.state.round}")
        for record in simulation.rounds():
            display.show(name, config.rounds, record.round, record)
            if record.skipped:
                errors.print(f"round {record.round} changed nothing: {record.skipped}", style="yellow")
            if stopped and record.round < config.rounds:  # after the last round there is only the model to write
                break
        last = simulation.state.round
    if last < config.rounds:
        raise _interrupted(last, f"adafed resume {quote(str(directory))}")


def _train_on_flower(config: Config, directory: Path, nodes: int | None, quiet: bool) -> None:
    """The same on Flower's simulation engine."""
    from adafed.flower import need_flower

    need_flower()
    from adafed.engines.flower.ray import simulate_on_ray

    name = f"{config.label}, seed {config.seed}"
    with Progress(quiet) as (display, stopped):
        last = simulate_on_ray(
            config,
            directory,
            nodes=nodes,
            watch=lambda record: display.show(name, config.rounds, record.round, record),
            stopped=lambda: bool(stopped),
        )
    if last < config.rounds:
        given = "" if nodes is None else f" --nodes {nodes}"
        raise _interrupted(last, f"adafed resume {quote(str(directory))}{given}")


def _interrupted(last: int, go_on: str) -> typer.Exit:
    errors.print(f"stopped after round {last}; go on with: {go_on}", style="yellow")
    return typer.Exit(130)


def _finished(config: Config, directory: Path, columns: Sequence[str], no_report: bool) -> None:
    """The run's fairness, as a table and as a page."""
    from adafed.runs.summary import summarise
    from adafed.studies.compare import comparison

    name = f"{config.label}, seed {config.seed}"
    summary = summarise(directory, columns=columns)
    if summary.final:
        console.print(comparison(name, [(config.label, summary)], columns).rich())
    else:
        errors.print(f"no client was tested (split.test = {config.split.test:g}), so there is no table of fairness")
    console.print(f"saved in {directory}")
    if not no_report:
        from adafed.page import gathered

        written(lambda: gathered([directory]), directory / PAGE)
