"""The test bench: how honest clients fare while others lie."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from adafed.commands.many import Jobs, watched
from adafed.commands.shared import (
    RULES,
    Form,
    Printed,
    Profile,
    Quiet,
    Seeds,
    Settings,
    Workers,
    console,
    errors,
    print_table,
    require_known,
    seeds_from,
    workers_setting,
)
from adafed.errors import AdafedError


def attack(
    experiment: Annotated[
        Path, typer.Argument(metavar="[EXPERIMENT]", help="A TOML file or a packaged experiment. Default: digits.")
    ] = Path("attack"),
    methods: Annotated[
        list[str] | None, typer.Option("--method", "-m", help="Only these of its methods. Repeatable.")
    ] = None,
    rules: Annotated[
        list[str] | None,
        typer.Option("--rule", "-r", metavar="RULE[:OPTIONS]", help=RULES),
    ] = None,
    attacks: Annotated[
        list[str] | None, typer.Option("--attack", "-a", help="Only these, as in 'loss x100'. Repeatable.")
    ] = None,
    share: Annotated[float, typer.Option(help="Share of the clients that lie, at least one.")] = 0.1,
    guards: Annotated[str, typer.Option(help="Without guards, with them, or both: off, on or both.")] = "both",
    seeds: Seeds = None,
    settings: Settings = None,
    profile: Profile = None,
    out: Annotated[Path | None, typer.Option(help="Where the runs go. Default: runs/NAME-attacks/share-SHARE.")] = None,
    jobs: Jobs = 1,
    workers: Workers = None,
    form: Printed = Form.table,
    quiet: Quiet = False,
) -> None:
    """Rules under attack: the honest clients' mean and worst accuracy, without guards and with them.

    Runs that are there already are read, not repeated; the same command goes on where it was stopped.
    """
    from adafed.config.studies import load_study
    from adafed.studies.attacks import bench, tables
    from adafed.studies.compare import method_from

    study = load_study(experiment, profile)
    require_known(methods, study.methods)
    chosen = {name: study.methods[name] for name in methods} if methods else ({} if rules else study.methods)
    study = study.with_methods(chosen | dict(method_from(text) for text in rules or []))
    if not study.methods:
        raise AdafedError(f"{experiment} has no [methods]; name rules with --rule, as in --rule fedavg --rule adafed")
    if not 0 < share < 1:
        raise AdafedError(f"--share is {share}; it must be above 0 and below 1")
    made = bench(
        study,
        seeds_from(seeds, study.seeds),
        [*(settings or []), *workers_setting(workers)],
        out or Path("runs") / f"{study.name}-attacks" / f"share-{share:g}",
        share=share,
        attacks=attacks or (),
        guards=_guards(guards),
    )
    stopped = watched(made.all, quiet=quiet, jobs=jobs)
    for table in tables(made, study.title or study.name):
        print_table(table, form)
        if form is Form.table:
            console.print()
    if stopped:
        errors.print("stopped; the same command goes on where it was", style="yellow")
        raise typer.Exit(130)


def _guards(text: str) -> dict[str, object]:
    """What the two halves of the table are under."""
    from adafed.studies.attacks import GUARDS

    if text == "both":
        return dict(GUARDS)
    if text in GUARDS:
        return {text: GUARDS[text]}
    raise AdafedError(f"--guards is {text!r}; it must be off, on or both")
