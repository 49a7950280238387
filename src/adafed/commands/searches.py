"""Hyper-parameter search, and the paper's tables and figures."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from adafed.commands.many import Jobs, Keep, can_keep, keep_runs, watched, write_page_of
from adafed.commands.report import PAGE, NoReport
from adafed.commands.shared import (
    Experiment,
    Form,
    Printed,
    Profile,
    Progress,
    Quiet,
    Seeds,
    Settings,
    Workers,
    console,
    different,
    errors,
    numbers_from,
    print_rows,
    print_table,
    seeds_from,
    workers_setting,
)
from adafed.errors import AdafedError
from adafed.registry import options

if TYPE_CHECKING:
    from adafed.config.configuration import Config
    from adafed.rounds.records import RoundRecord
    from adafed.studies.compare import Run


class Target(StrEnum):
    """What `tune` looks for."""

    mean = "mean"
    worst_10 = "worst_10"
    fair = "fair"
    both = "both"


Objective = Annotated[
    Target, typer.Option(help="What to maximise on the validation split; fair and both: mean and worst 10 %.")
]
Rates = Annotated[str | None, typer.Option(help="Server rates to try, the same for every rule. Default: 0.1,0.3,1,3.")]
Momenta = Annotated[
    str | None,
    typer.Option(
        help="Server momenta to try, the same for every rule. Default: 0,0.9 where the server's optimiser is SGD."
    ),
]
Memories = Annotated[
    str | None,
    typer.Option(help="Values of memory.rounds to try, as in 0,10,all. Default: 0,all where clients are sampled."),
]
Grid = Annotated[
    list[str] | None,
    typer.Option(metavar="OPTION=VALUES", help="Instead of the rule's own grid, as in gamma=2,10. Repeatable."),
]
Rungs = Annotated[
    str | None,
    typer.Option(
        metavar="ROUNDS",
        help="As in 30,100: all trials to round 30, the best third on to 100, the best third of those to the end.",
    ),
]


def tune(
    experiment: Experiment,
    rule: Annotated[str | None, typer.Option(help="The rule to tune. Default: the experiment's own.")] = None,
    objective: Objective = Target.worst_10,
    trials: Annotated[
        int | None, typer.Option(min=1, help="Try so many points, picked by Optuna. Default: the whole grid.")
    ] = None,
    rungs: Rungs = None,
    grid: Grid = None,
    rates: Rates = None,
    momenta: Momenta = None,
    memories: Memories = None,
    seeds: Annotated[str, typer.Option(help="Seeds for tuning; not the ones you report.")] = "1000",
    settings: Settings = None,
    profile: Profile = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Where the trials go. Default: runs/NAME-tune/RULE, or runs/NAME-PROFILE-tune/RULE."),
    ] = None,
    jobs: Jobs = 1,
    workers: Workers = None,
    form: Printed = Form.table,
    quiet: Quiet = False,
) -> None:
    """Search a rule's grid from the paper times one grid of the server's, the same for every rule: rates, momentum
    and, where clients are sampled, a memory of absent clients.

    The choice is made on the validation split. `--objective fair` takes the best worst 10 % within a point
    of the best mean; with `both` they are two objectives, and the trials that no other beats in both are
    marked.
    """
    from adafed.config.studies import load_study

    study = load_study(experiment, profile)
    if rule is not None and "=" in rule:
        raise AdafedError(f"--rule is {rule!r}; give its name, and what to try of its options as in --grid gamma=1,2")
    own = [] if rule is None else [f"rule.name={rule}"]
    config = study.config(None, None, [*own, *(settings or []), *workers_setting(workers)])
    where = out or Path("runs") / "-".join([study.name, *([profile] if profile else []), "tune"]) / config.rule.name
    search = _search(config, objective, rungs, rates, momenta, memories, jobs)
    searched(config, where, search, different(seeds), grid=_grid(config, grid), trials=trials, quiet=quiet, form=form)


def _grid(config: Config, given: list[str] | None) -> dict[str, tuple[float, ...]] | None:
    """Options of the rule and their values; None where nothing is given."""
    if not given:
        return None
    known, found = options(config.parts.rule), {}
    for one in given:
        option, equals, values = one.partition("=")
        option = option.strip().removeprefix("rule.")
        if not equals or option not in known:
            names = ", ".join(known) or "no options"
            raise AdafedError(f"--grid {one}: it must be OPTION=VALUES, and rule {config.rule.name} has {names}")
        found[option] = tuple(numbers_from(values, f"--grid {option}", float))
    return found


class Search(NamedTuple):
    """How to search, as the options say."""

    objective: Target
    rungs: tuple[int, ...]
    rates: tuple[float, ...]
    momenta: tuple[float, ...]
    memories: tuple[float | str, ...]
    jobs: int


def _search(
    config: Config,
    objective: Target,
    rungs: str | None,
    rates: str | None,
    momenta: str | None,
    memories: str | None,
    jobs: int,
) -> Search:
    from adafed.studies.tune import RATES, server_grid

    usual = server_grid(config)
    given = RATES if rates is None else tuple(numbers_from(rates, "--rates", float))
    steps = () if rungs is None else tuple(numbers_from(rungs, "--rungs", int))
    momentum = usual[0] if momenta is None else tuple(numbers_from(momenta, "--momenta", float))
    words = () if memories is None else tuple(memories.split(","))
    memory = usual[1] if memories is None else tuple(_rounds(word.strip()) for word in words)
    return Search(objective, steps, given, momentum, memory, jobs)


def _rounds(word: str) -> int | str:
    if word == "all" or word.isdecimal():
        return word if word == "all" else int(word)
    raise AdafedError(f"--memories has {word!r}; give numbers of rounds, or all, as in 0,10,all")


def reproduce(
    name: Annotated[
        str | None, typer.Argument(help="A table or figure of the paper. Without it, all are listed.")
    ] = None,
    listed: Annotated[bool, typer.Option("--list", help="Every table and figure, its data and its cost.")] = False,
    profile: Annotated[str, typer.Option(help="paper, laptop or another of the experiment's profiles.")] = "laptop",
    methods: Annotated[list[str] | None, typer.Option("--method", "-m", help="Only these rows. Repeatable.")] = None,
    seeds: Seeds = None,
    rounds: Annotated[int | None, typer.Option(min=1, help="Instead of the profile's.")] = None,
    panels: Annotated[
        list[str] | None, typer.Option("--panel", help="Only these panels of a figure. Repeatable.")
    ] = None,
    sweep: Annotated[bool, typer.Option("--gamma-sweep", help="AdaFed for every gamma of the paper's grid.")] = False,
    tuned: Annotated[
        str | None,
        typer.Option(
            "--tune",
            metavar="METHOD",
            help="Search this method's grid instead, as `adafed tune`, with the next five options.",
        ),
    ] = None,
    objective: Objective = Target.fair,
    rungs: Rungs = None,
    rates: Rates = None,
    momenta: Momenta = None,
    memories: Memories = None,
    data_dir: Annotated[Path | None, typer.Option(help="Where the data sets are. Default: ADAFED_DATA.")] = None,
    download: Annotated[bool, typer.Option("--download", help="Fetch the data from its publisher.")] = False,
    verify: Annotated[bool, typer.Option("--verify/--no-verify", help="Insist on the published files.")] = True,
    settings: Settings = None,
    jobs: Jobs = 1,
    workers: Workers = None,
    out: Annotated[
        Path | None, typer.Option(help="Where the runs go, in a folder NAME-PROFILE. Default: runs/reproduce.")
    ] = None,
    keep: Keep = None,
    form: Printed = Form.table,
    quiet: Quiet = False,
    no_report: NoReport = False,
) -> None:
    """Run one table or figure of the paper and print our numbers beside the printed ones.

    Printed numbers that cannot be true are marked and explained. The same command goes on where it was stopped.
    """
    from adafed.paper import reproduce as work

    if data_dir is not None:
        os.environ["ADAFED_DATA"] = str(data_dir.expanduser().absolute())
    if listed or name is None:
        print_rows("tables and figures; hours for one seed on two cores", *work.listing())
        return
    changes = [*(settings or []), *workers_setting(workers)]
    request = work.Request(
        name, profile, methods, seeds_from(seeds, ()), rounds, changes, out, sweep, download, verify, panels or ()
    )
    if tuned is not None:
        _require_meaning(name, "a table", {"--keep": keep})
        config, grid, where = work.tuning(request, tuned)
        search = _search(config, objective, rungs, rates, momenta, memories, jobs)
        searched(config, where, search, request.seeds or (1000,), grid=grid, quiet=quiet, form=form)
        return
    _require_meaning(name, "--tune", {"--rungs": rungs, "--rates": rates, "--momenta": momenta, "--memories": memories})
    plan = work.planned_for(request)
    if plan.figure is None:
        _require_meaning(name, "a figure", {"--panel": ", ".join(panels or ())})
    if keep is not None and len(plan.parts) > 1:
        told = ", ".join(part.study.name for part in plan.parts)
        raise AdafedError(f"--keep is {keep}, and {name} is of several studies, {told}; keep one at a time, by --panel")
    for line in plan.notes:
        errors.print(line, style="yellow")
    for part in plan.parts:
        can_keep(part.study, part.runs, keep, {"profile": part.profile})
    stopped = watched(plan.runs, quiet=quiet, jobs=jobs)
    for table in plan.tables():
        print_table(table, form)
    if keep is not None:
        for part in plan.parts:
            keep_runs(part.study, part.runs, keep, {"profile": part.profile})
    for part in () if no_report else plan.parts:
        folder = plan.root / f"{part.study.name}-{part.profile}"
        title = f"{part.study.title or part.study.name}, {part.profile} profile"
        write_page_of(part.runs, folder, folder / PAGE, title, part.study.notes)
    if stopped:
        errors.print("stopped; the same command goes on where it was", style="yellow")
        raise typer.Exit(130)
    for path in plan.drawn():
        console.print(str(path))


def _require_meaning(name: str, belongs: str, given: Mapping[str, object]) -> None:
    """What would be passed over in silence."""
    for option, value in given.items():
        if value:
            raise AdafedError(f"{option} is {value} and belongs to {belongs}, which {name} is not here; leave it out")


def searched(
    config: Config,
    where: Path,
    search: Search,
    seeds: Sequence[int],
    *,
    grid: Mapping[str, Sequence[float]] | None = None,
    trials: int | None = None,
    quiet: bool,
    form: Form,
) -> None:
    """A hyper-parameter search under the display, then its table and the best choice as settings."""
    from adafed.studies.tune import search_table, tune, written

    with Progress(quiet) as (display, stopped):

        def watch(one: Run, round_: int, record: RoundRecord | None) -> None:
            display.show(f"{one.method}, seed {one.config.seed}", one.config.rounds, round_, record)
            if stopped:
                raise KeyboardInterrupt

        try:
            found = tune(
                config,
                where,
                objective=search.objective.value,
                seeds=seeds,
                rates=search.rates,
                momenta=search.momenta,
                memories=search.memories,
                grid=grid,
                trials=trials,
                rungs=search.rungs,
                jobs=search.jobs,
                watch=watch,
            )
        except KeyboardInterrupt:
            errors.print("stopped; the same command goes on where it was", style="yellow")
            raise typer.Exit(130) from None
    print_table(search_table(found, search.objective.value), form)
    for best in found.best:
        chosen = {"rule.name": config.rule.name} | best.choice
        console.print("  ".join(f"--set {key}={written(value)}" for key, value in chosen.items()), style="bold")
