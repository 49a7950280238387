"""Many runs: the demo, comparisons, hyper-parameter search, and the paper's tables and figures."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from adafed.commands.shared import (
    MEASURES,
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
    require_known,
    seeds_from,
    workers_setting,
)
from adafed.errors import AdafedError

if TYPE_CHECKING:
    from adafed.config.sections import Config
    from adafed.config.studies import Study
    from adafed.rounds.records import RoundRecord
    from adafed.studies.compare import Run
    from adafed.studies.results import Kept


class Target(StrEnum):
    """What `tune` looks for."""

    mean = "mean"
    worst_10 = "worst_10"
    fair = "fair"
    both = "both"


Objective = Annotated[Target, typer.Option(help="What to maximise on the validation split.")]
Rates = Annotated[str | None, typer.Option(help="Server rates to try, the same for every rule, as in 0.3,1,3.")]
Rungs = Annotated[
    str | None,
    typer.Option(metavar="ROUNDS", help="As in 30,100: all trials to round 30, a third on to 100, a third of it on."),
]
Keep = Annotated[Path | None, typer.Option(metavar="FILE", help="Add the evaluations of all runs to a small file.")]
Jobs = Annotated[int, typer.Option(min=1, help="Runs at a time, each in a process of its own.")]


def demo(workers: Workers = None, quiet: Quiet = False) -> None:
    """Digits over 20 clients, FedAvg against AdaFed: a fairness table in under a minute, no download."""
    from adafed.config.experiments import packaged
    from adafed.config.studies import load_study
    from adafed.runs.summary import summarise
    from adafed.studies.compare import comparison, planned

    study = load_study(packaged("demo"))
    settings = [f"run.workers={0 if workers is None else workers}"]
    with tempfile.TemporaryDirectory(prefix="adafed-demo-") as folder:
        runs = planned(study, study.seeds, settings, Path(folder))
        stopped = watched(runs, quiet=quiet, jobs=1)
        found = [(run.method, summarise(run.directory)) for run in runs if (run.directory / "rounds.sqlite").exists()]
        console.print(comparison(study.title, found, study.columns, tail=True, notes=study.notes).rich())
    if stopped:
        errors.print("stopped; the demo keeps nothing, so the next one begins anew", style="yellow")
        raise typer.Exit(130)
    console.print(
        "Next: [bold]adafed list rules[/bold]; your own data: [bold]adafed run experiment.toml[/bold].", markup=True
    )


def compare(
    experiment: Experiment,
    methods: Annotated[list[str] | None, typer.Option("--method", "-m", help="Only these of its methods.")] = None,
    rules: Annotated[
        list[str] | None,
        typer.Option("--rule", "-r", metavar="RULE[:OPTIONS]", help="Add a rule, as in adafed:gamma=5,hull=simplex."),
    ] = None,
    seeds: Seeds = None,
    settings: Settings = None,
    profile: Profile = None,
    out: Annotated[Path | None, typer.Option(help="Where the runs go. Default: runs/NAME.")] = None,
    jobs: Jobs = 1,
    workers: Workers = None,
    tail: Annotated[bool, typer.Option("--tail", help="Average over the last tenth of the rounds.")] = False,
    keep: Keep = None,
    form: Printed = Form.table,
    quiet: Quiet = False,
) -> None:
    """Several methods, several seeds, one table: mean and standard deviation over seeds, best and second best marked.

    All methods see the same split, the same first model and the same cohorts at a given seed. Runs that are there
    already are read, not repeated.
    """
    from adafed.config.studies import load_study
    from adafed.runs.summary import summarise
    from adafed.studies.compare import comparison, method_from, planned

    study = load_study(experiment, profile)
    chosen = {name: study.methods[name] for name in methods or []} if require_known(methods, study.methods) else {}
    added = dict(method_from(text) for text in rules or [])
    study = study.with_methods((chosen if methods else ({} if rules else study.methods)) | added)
    if not study.methods:
        raise AdafedError(f"{experiment} has no [methods]; name rules with --rule, as in --rule fedavg --rule adafed")
    runs = planned(study, seeds_from(seeds, study.seeds), [*(settings or []), *workers_setting(workers)],
                   out or Path("runs") / (study.name if profile is None else f"{study.name}-{profile}"))  # fmt: skip
    told = {"profile": profile} if profile else {}
    _can_keep(study, keep, told)
    stopped = watched(runs, quiet=quiet, jobs=jobs)
    there = [one for one in runs if (one.directory / "rounds.sqlite").exists()]
    found = [(one.method, summarise(one.directory, columns=study.columns)) for one in there]
    print_table(comparison(study.title or study.name, found, study.columns, tail=tail, notes=study.notes), form)
    if keep is not None:
        _kept(study, runs, keep, told)
    if stopped:
        errors.print("stopped; the same command goes on where it was", style="yellow")
        raise typer.Exit(130)


def _can_keep(study: Study, path: Path | None, told: dict[str, str]) -> None:
    """What is wrong with --keep is told before the runs, not after."""
    from adafed.studies.results import kept_for

    if path is not None:
        kept_for(path, study.title or study.name, told)


def _kept(study: Study, runs: Sequence[Run], path: Path, told: dict[str, str]) -> None:
    from adafed.studies import results

    results.keep(results.gathered(study.title or study.name, study.columns, runs, told), path)
    errors.print(f"kept in {path}")


def results(
    path: Annotated[Path, typer.Argument(help="A file that --keep wrote.")],
    against: Annotated[
        str | None, typer.Option(help="The method others are compared with. Default: the first.")
    ] = None,
    final: Annotated[bool, typer.Option("--final", help="The final model, not the last tenth of the rounds.")] = False,
    columns: Annotated[str, typer.Option(help=MEASURES)] = "mean,std,excess,worst_10,best_10",
    levels: Annotated[
        list[str] | None, typer.Option("--reach", metavar="MEASURE=PERCENT", help="As in mean=45. Repeatable.")
    ] = None,
    form: Printed = Form.table,
) -> None:
    """What kept results say: each method's numbers, differences paired over the seeds, and rounds to get there."""
    from adafed.studies.results import load, paired, rounds_to, scores, usual_levels

    kept = load(path)
    if not kept.runs:
        raise AdafedError(f"{path} holds no evaluations yet; train further and keep again")
    reference = against or next(iter(kept.methods()))
    if reference not in kept.methods():
        raise AdafedError(f"--against is {reference!r}; there are {', '.join(kept.methods())}")
    keys = [key.strip() for key in columns.split(",")]
    _require_kept(keys, "--columns", columns, kept)
    reach = dict(_level(text, kept) for text in levels) if levels else usual_levels(kept, reference)
    tables = (scores(kept, keys, final=final), paired(kept, reference, keys, final=final), rounds_to(kept, reach))
    for table in tables:
        print_table(table, form)
        console.print()


def _require_kept(keys: list[str], option: str, text: str, kept: Kept) -> None:
    for key in keys:
        if key not in kept.measures():
            raise AdafedError(f"{option} is {text!r}; the file keeps {', '.join(kept.measures())}")


def _level(text: str, kept: Kept) -> tuple[str, float]:
    key, _, number = text.partition("=")
    try:
        level = float(number)
    except ValueError:
        level = float("nan")
    if key not in kept.measures() or level != level:
        there = ", ".join(kept.measures())
        raise AdafedError(f"--reach is {text!r}; it must be one of {there} and a number, as in mean=45")
    return key, level


def tune(
    experiment: Experiment,
    rule: Annotated[str | None, typer.Option(help="The rule to tune. Default: the experiment's own.")] = None,
    objective: Objective = Target.worst_10,
    trials: Annotated[int | None, typer.Option(min=1, help="Pick so many points by Optuna; default: all.")] = None,
    rungs: Rungs = None,
    rates: Rates = None,
    seeds: Annotated[str, typer.Option(help="Seeds for tuning; not the ones you report.")] = "1000",
    settings: Settings = None,
    profile: Profile = None,
    out: Annotated[Path | None, typer.Option(help="Where the trials go. Default: runs/NAME-PROFILE-tune/RULE.")] = None,
    jobs: Jobs = 1,
    workers: Workers = None,
    form: Printed = Form.table,
    quiet: Quiet = False,
) -> None:
    """Search a rule's grid from the paper times one grid of server rates, the same for every rule.

    The choice is made on the validation split. `--objective fair` takes the best worst 10 % within a point
    of the best mean; with `both` they are two objectives, and the trials that no other beats in both are
    marked.
    """
    from adafed.config.studies import load_study

    study = load_study(experiment, profile)
    own = [] if rule is None else [f"rule.name={rule}"]
    config = study.config(None, None, [*own, *(settings or []), *workers_setting(workers)])
    where = out or Path("runs") / "-".join([study.name, *([profile] if profile else []), "tune"]) / config.rule.name
    search = _search(objective, rungs, rates, jobs)
    searched(config, where, search, different(seeds), trials=trials, quiet=quiet, form=form)


class Search(NamedTuple):
    """How to search, as the options say."""

    objective: Target
    rungs: tuple[int, ...]
    rates: tuple[float, ...]
    jobs: int


def _search(objective: Target, rungs: str | None, rates: str | None, jobs: int) -> Search:
    from adafed.studies.tune import RATES

    given = RATES if rates is None else tuple(numbers_from(rates, "--rates", float))
    steps = () if rungs is None else tuple(numbers_from(rungs, "--rungs", int))
    return Search(objective, steps, given, jobs)


def reproduce(
    name: Annotated[str | None, typer.Argument(help="A table or figure of the paper; --list shows them.")] = None,
    listed: Annotated[bool, typer.Option("--list", help="Every table and figure, its data and its cost.")] = False,
    profile: Annotated[str, typer.Option(help="paper, laptop or another of the experiment's profiles.")] = "laptop",
    methods: Annotated[list[str] | None, typer.Option("--method", "-m", help="Only these rows. Repeatable.")] = None,
    seeds: Seeds = None,
    rounds: Annotated[int | None, typer.Option(min=1, help="Instead of the profile's.")] = None,
    sweep: Annotated[bool, typer.Option("--gamma-sweep", help="AdaFed for every gamma of the paper's grid.")] = False,
    tuned: Annotated[str | None, typer.Option("--tune", metavar="METHOD", help="Search the paper's grid.")] = None,
    objective: Objective = Target.fair,
    rungs: Rungs = None,
    rates: Rates = None,
    data_dir: Annotated[Path | None, typer.Option(help="Where the data sets are. Default: ADAFED_DATA.")] = None,
    download: Annotated[bool, typer.Option("--download", help="Fetch the data from its publisher.")] = False,
    verify: Annotated[bool, typer.Option("--verify/--no-verify", help="Insist on the published files.")] = True,
    settings: Settings = None,
    jobs: Jobs = 1,
    workers: Workers = None,
    out: Annotated[Path | None, typer.Option(help="Where the runs go. Default: runs/reproduce/NAME-PROFILE.")] = None,
    keep: Keep = None,
    form: Printed = Form.table,
    quiet: Quiet = False,
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
    request = work.Request(name, profile, methods, seeds_from(seeds, ()), rounds, changes, out, sweep, download, verify)
    if tuned is not None:
        config, grid, where = work.tuning(request, tuned)
        search = _search(objective, rungs, rates, jobs)
        searched(config, where, search, request.seeds or (1000,), grid=grid, quiet=quiet, form=form)
        return
    plan = work.planned_for(request)
    for line in plan.notes:
        errors.print(line, style="yellow")
    for part in plan.parts:
        _can_keep(part.study, keep, {"profile": part.profile})
    stopped = watched(plan.runs, quiet=quiet, jobs=jobs)
    for table in plan.tables():
        print_table(table, form)
    if keep is not None:
        for part in plan.parts:
            _kept(part.study, part.runs, keep, {"profile": part.profile})
    if stopped:
        errors.print("stopped; the same command goes on where it was", style="yellow")
        raise typer.Exit(130)
    for path in plan.drawn():
        console.print(str(path))


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

        found = tune(
            config,
            where,
            objective=search.objective.value,
            seeds=seeds,
            rates=search.rates,
            grid=grid,
            trials=trials,
            rungs=search.rungs,
            jobs=search.jobs,
            watch=watch,
        )
    print_table(search_table(found, search.objective.value), form)
    for best in found.best:
        console.print("  ".join(f"--set {key}={written(value)}" for key, value in best.choice.items()), style="bold")


def watched(runs: Sequence[Run], *, quiet: bool, jobs: int) -> bool:
    """Do the runs under one display. True if Ctrl-C ended it."""
    from adafed.studies.compare import run_all

    with Progress(quiet) as (display, stopped):

        def watch(one: Run, round_: int, record: RoundRecord | None) -> None:
            display.show(f"{one.method}, seed {one.config.seed}", one.config.rounds, round_, record)
            if stopped:
                raise KeyboardInterrupt

        try:
            run_all(runs, watch, jobs=jobs)
        except KeyboardInterrupt:
            return True
    return False
