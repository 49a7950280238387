"""Many runs: the demo, comparisons, and what was kept of them."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from adafed.commands.many import Jobs, Keep, can_keep, keep_runs, watched, write_page_of
from adafed.commands.report import PAGE, NoReport
from adafed.commands.shared import (
    MEASURES,
    RULES,
    Experiment,
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
from adafed.errors import AdafedError, quoted

if TYPE_CHECKING:
    from adafed.studies.kept import Kept


def demo(
    workers: Annotated[int, typer.Option(min=0, help="Worker processes; 0: all in this one.")] = 0,
    quiet: Quiet = False,
    no_report: NoReport = False,
) -> None:
    """Digits over 20 clients, FedAvg against AdaFed: a fairness table and a page in about a minute, no download."""
    from adafed.config.experiments import packaged
    from adafed.config.studies import load_study
    from adafed.runs.summary import summarise
    from adafed.studies.compare import begun, comparison, planned

    study = load_study(packaged("demo"))
    settings = [f"run.workers={workers}"]
    with tempfile.TemporaryDirectory(prefix="adafed-demo-") as folder:
        runs = planned(study, study.seeds, settings, Path(folder))
        stopped = watched(runs, quiet=quiet, jobs=1)
        found = [(run.method, summarise(run.directory)) for run in runs if begun(run)]
        console.print(comparison(study.title, found, study.columns, tail=True, notes=study.notes).rich())
        if not no_report and not stopped:  # the page of a whole demo may be there
            write_page_of(runs, Path(folder), Path("adafed-demo.html"), study.title, study.notes, tail=True, kept=False)
    if stopped:
        errors.print("stopped; the demo keeps nothing, so the next one begins anew", style="yellow")
        raise typer.Exit(130)
    console.print(
        "Next: [bold]adafed list rules[/bold]; your own data: [bold]adafed run experiment.toml[/bold].", markup=True
    )


def compare(
    experiment: Experiment,
    methods: Annotated[
        list[str] | None, typer.Option("--method", "-m", help="Only these of its methods. Repeatable.")
    ] = None,
    rules: Annotated[
        list[str] | None,
        typer.Option("--rule", "-r", metavar="RULE[:OPTIONS]", help=RULES),
    ] = None,
    seeds: Seeds = None,
    settings: Settings = None,
    profile: Profile = None,
    out: Annotated[
        Path | None, typer.Option(help="Where the runs go. Default: runs/NAME, or runs/NAME-PROFILE.")
    ] = None,
    jobs: Jobs = 1,
    workers: Workers = None,
    tail: Annotated[bool, typer.Option("--tail", help="Average over the last tenth of the rounds.")] = False,
    keep: Keep = None,
    form: Printed = Form.table,
    quiet: Quiet = False,
    no_report: NoReport = False,
) -> None:
    """Several methods, several seeds, one table: mean and standard deviation over seeds, best and second best marked.

    All methods see the same split, the same first model and the same cohorts at a given seed. Runs that are there
    already are read, not repeated.
    """
    from adafed.config.studies import load_study
    from adafed.runs.summary import summarise
    from adafed.studies.compare import begun, comparison, method_from, planned

    study = load_study(experiment, profile)
    chosen = {name: study.methods[name] for name in methods or []} if require_known(methods, study.methods) else {}
    added = dict(method_from(text) for text in rules or [])
    study = study.with_methods((chosen if methods else ({} if rules else study.methods)) | added)
    if not study.methods:
        raise AdafedError(f"{experiment} has no [methods]; name rules with --rule, as in --rule fedavg --rule adafed")
    folder = out or Path("runs") / (study.name if profile is None else f"{study.name}-{profile}")
    runs = planned(study, seeds_from(seeds, study.seeds), [*(settings or []), *workers_setting(workers)], folder)
    told = {"profile": profile} if profile else {}
    can_keep(study, runs, keep, told)
    stopped = watched(runs, quiet=quiet, jobs=jobs)
    there = [one for one in runs if begun(one)]
    found = [(one.method, summarise(one.directory, columns=study.columns)) for one in there]
    print_table(comparison(study.title or study.name, found, study.columns, tail=tail, notes=study.notes), form)
    if keep is not None:
        keep_runs(study, runs, keep, told)
    if not no_report:
        write_page_of(runs, folder, folder / PAGE, study.title or study.name, study.notes, tail=tail)
    if stopped:
        errors.print("stopped; the same command goes on where it was", style="yellow")
        raise typer.Exit(130)


def results(
    path: Annotated[Path, typer.Argument(help="A file that --keep wrote, or a folder of them.")],
    against: Annotated[
        str | None, typer.Option(help="The method others are compared with. Default: the first.")
    ] = None,
    final: Annotated[
        bool, typer.Option("--final", help="Of the final model, not averaged over the last tenth of the rounds.")
    ] = False,
    columns: Annotated[str, typer.Option(help=MEASURES)] = "mean,std,excess,worst_10,best_10",
    methods: Annotated[
        list[str] | None, typer.Option("--method", "-m", help="Only these methods, in this order. Repeatable.")
    ] = None,
    figure: Annotated[
        Path | None,
        typer.Option(
            metavar="STEM", help="Draw the --columns by round too, one panel each: STEM.png, STEM.svg and STEM.pdf."
        ),
    ] = None,
    levels: Annotated[
        list[str] | None,
        typer.Option(
            "--reach",
            metavar="MEASURE=PERCENT",
            help="Rounds until a measure is reached, as in mean=45. Repeatable. Default: a point below --against.",
        ),
    ] = None,
    form: Printed = Form.table,
) -> None:
    """What kept results say: each method's numbers, differences paired over the seeds, and rounds to get there.

    Of a folder: who is fairest in which set-up, as Markdown, without the options. A tie is what the paired intervals do
    not tell apart.
    """
    from adafed.report.figures import save_curves
    from adafed.studies.kept import load
    from adafed.studies.results import curves, paired, rounds_to, scores, usual_levels

    if path.is_dir():
        from adafed.studies import overview

        found, left = overview.setups(path)
        for name, why in left.items():
            errors.print(f"left out: {name}: {why}", soft_wrap=True)
        console.print(overview.verdicts(found), markup=False, highlight=False, soft_wrap=True)
        return
    kept = load(path)
    if not kept.runs:
        raise AdafedError(f"{path} holds no evaluations yet; train further and keep again")
    kept = kept.only(methods) if methods else kept
    reference = against or next(iter(kept.methods()))
    if reference not in kept.methods():
        raise AdafedError(f"--against is {reference!r}; there are {quoted(kept.methods())}")
    keys = [key.strip() for key in columns.split(",")]
    _require_kept(keys, "--columns", columns, kept)
    reach = dict(_level(text, kept) for text in levels) if levels else usual_levels(kept, reference)
    tables = (scores(kept, keys, final=final), paired(kept, reference, keys, final=final), rounds_to(kept, reach))
    for table in tables:
        print_table(table, form)
        console.print()
    for file in save_curves(curves(kept, keys), figure) if figure is not None else ():
        console.print(str(file))


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
