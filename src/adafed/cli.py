"""The command line. Commands are thin: they read options, call the library and print."""

from __future__ import annotations

import os
import sys
from enum import StrEnum
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table as RichTable

from adafed.errors import AdafedError
from adafed.flower.cli import app as flower

app = typer.Typer(
    name="adafed",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    help="Fair federated learning: train with AdaFed and the methods it is compared with, and see how the model treats "
    "its worst clients.\n\nStart with [bold]adafed demo[/bold]; then [bold]adafed run experiment.toml[/bold].",
)
app.add_typer(flower, name="flower")
WIDE = 160  # columns where nobody is watching: a table in a log must not lose its cells
console = Console(width=None if sys.stdout.isatty() else WIDE)
errors = Console(stderr=True, width=None if sys.stderr.isatty() else WIDE)


class Engine(StrEnum):
    """Where clients train."""

    local = "local"
    flower = "flower"


class Form(StrEnum):
    """How a table is printed."""

    table = "table"
    markdown = "markdown"
    latex = "latex"
    csv = "csv"


class Target(StrEnum):
    """What `tune` looks for."""

    mean = "mean"
    worst_10 = "worst_10"
    both = "both"


Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Set any key of the experiment, as in rule.gamma=5. Repeatable."),
]
Experiment = Annotated[Path, typer.Argument(metavar="EXPERIMENT.toml", help="See docs/configuration.md.")]
Profile = Annotated[str | None, typer.Option(help="One of the experiment's profiles.")]
Workers = Annotated[
    int | None,
    typer.Option(min=0, help="Worker processes; 0 works in this one. The result is the same to the bit."),
]
Seeds = Annotated[str | None, typer.Option(help="Seeds, as in 0,1,2. Default: the experiment's own.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress display.")]
Printed = Annotated[Form, typer.Option("--format", "-f", help="How to print the table.")]


@app.command()
def demo(workers: Workers = None, quiet: Quiet = False) -> None:
    """Digits over 20 clients, FedAvg against AdaFed: a fairness table in under a minute, no download."""
    import tempfile

    from adafed.compare import comparison, planned
    from adafed.runs.summary import summarise
    from adafed.study import study_from

    study = study_from(_toml(files("adafed").joinpath("demo.toml").read_text()), "demo")
    settings = [f"run.workers={0 if workers is None else workers}"]
    with tempfile.TemporaryDirectory(prefix="adafed-demo-") as folder:
        runs = planned(study, study.seeds, settings, Path(folder))
        _watched(runs, quiet=quiet, jobs=1)
        found = [(run.method, summarise(run.directory)) for run in runs]
        console.print(comparison(study.title, found, study.columns, tail=True, notes=study.notes).rich())
    console.print("Next: [bold]adafed list rules[/bold]; your own data: [bold]adafed run experiment.toml[/bold].")


@app.command()
def run(
    experiment: Experiment,
    settings: Settings = None,
    method: Annotated[str | None, typer.Option(help="One of the experiment's [methods].")] = None,
    profile: Profile = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Instead of the experiment's seed.")] = None,
    out: Annotated[Path | None, typer.Option(help="Run directory. Default: runs/NAME/METHOD-seed-N.")] = None,
    workers: Workers = None,
    quiet: Quiet = False,
    go_on: Annotated[bool, typer.Option("--continue", help="Continue the run directory if it is there.")] = False,
    engine: Annotated[Engine, typer.Option(help="The simulator of this package, or Flower's, on Ray.")] = Engine.local,
    nodes: Annotated[int | None, typer.Option(min=1, help="Flower's nodes. Default: one a client.")] = None,
) -> None:
    """Train one experiment and print its fairness.

    Everything is saved after every round. Ctrl-C stops after the round under way; [bold]adafed resume[/bold] goes on,
    to the same bits as if it had never stopped.
    """
    from adafed.runs.summary import label
    from adafed.study import load_study

    config = load_study(experiment, profile).config(method, seed, [*(settings or []), *_workers(workers)])
    directory = out or Path("runs") / config.name / f"{(method or label(config)).replace('/', '-')}-seed-{config.seed}"
    if (directory / "run.json").exists() and not go_on:
        raise AdafedError(f"{directory} holds a run already; adafed resume {directory}, or choose another with --out")
    if engine is Engine.flower:
        _train_on_flower(config, directory, nodes, quiet)
    else:
        _train(config, directory, quiet)


@app.command()
def resume(
    directory: Annotated[Path, typer.Argument(help="The run directory.")],
    rounds: Annotated[int | None, typer.Option(min=1, help="Train to this round instead.")] = None,
    workers: Workers = None,
    quiet: Quiet = False,
) -> None:
    """Go on with a run that was stopped or killed."""
    from adafed.runs.config import load_config

    if not (directory / "config.toml").exists():
        raise AdafedError(f"{directory} is not a run directory: it has no config.toml")
    settings = _workers(workers) + ([] if rounds is None else [f"rounds={rounds}"])
    _train(load_config(directory / "config.toml", settings), directory, quiet)


@app.command()
def compare(
    experiment: Experiment,
    methods: Annotated[list[str] | None, typer.Option("--method", "-m", help="Only these of its [methods].")] = None,
    rules: Annotated[
        list[str] | None,
        typer.Option("--rule", "-r", metavar="RULE[:OPTIONS]", help="Add a rule, as in adafed:gamma=5,hull=simplex."),
    ] = None,
    seeds: Seeds = None,
    settings: Settings = None,
    profile: Profile = None,
    out: Annotated[Path | None, typer.Option(help="Where the runs go. Default: runs/NAME.")] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Runs at a time, each in a process of its own.")] = 1,
    workers: Workers = None,
    tail: Annotated[bool, typer.Option("--tail", help="Average over the last tenth of the rounds.")] = False,
    form: Printed = Form.table,
    quiet: Quiet = False,
) -> None:
    """Several methods, several seeds, one table: mean and standard deviation over seeds, best and second best marked.

    All methods see the same split, the same first model and the same cohorts at a given seed. Runs that are there
    already are read, not repeated.
    """
    from adafed.compare import comparison, method_from, planned
    from adafed.runs.summary import summarise
    from adafed.study import load_study

    study = load_study(experiment, profile)
    chosen = {name: study.methods[name] for name in methods or []} if _known(methods, study.methods) else {}
    added = dict(method_from(text) for text in rules or [])
    study = study.with_methods((chosen if methods else ({} if rules else study.methods)) | added)
    if not study.methods:
        raise AdafedError(f"{experiment} has no [methods]; name rules with --rule, as in --rule fedavg --rule adafed")
    runs = planned(study, _seeds(seeds, study.seeds), [*(settings or []), *_workers(workers)],
                   out or Path("runs") / (study.name if profile is None else f"{study.name}-{profile}"))  # fmt: skip
    stopped = _watched(runs, quiet=quiet, jobs=jobs)
    found = [(one.method, summarise(one.directory)) for one in runs if (one.directory / "rounds.sqlite").exists()]
    _print(comparison(study.title or study.name, found, study.columns, tail=tail, notes=study.notes), form)
    if stopped:
        errors.print("stopped; the same command goes on where it was", style="yellow")
        raise typer.Exit(130)


@app.command()
def tune(
    experiment: Experiment,
    rule: Annotated[str | None, typer.Option(help="The rule to tune. Default: the experiment's own.")] = None,
    objective: Annotated[Target, typer.Option(help="What to maximise on the validation split.")] = Target.worst_10,
    trials: Annotated[int | None, typer.Option(min=1, help="Pick so many points by Optuna; default: all.")] = None,
    rates: Annotated[str | None, typer.Option(help="Server rates, the same for every rule, as in 0.3,1,3.")] = None,
    seeds: Annotated[str, typer.Option(help="Seeds for tuning; not the ones you report.")] = "1000",
    settings: Settings = None,
    profile: Profile = None,
    out: Annotated[Path | None, typer.Option(help="Where the trials go. Default: runs/NAME-tune/RULE.")] = None,
    workers: Workers = None,
    form: Printed = Form.table,
    quiet: Quiet = False,
) -> None:
    """Search a rule's grid from the paper times one grid of server rates, the same for every rule.

    The choice is made on the validation split. With [bold]--objective both[/bold] mean accuracy and worst 10 % are two
    objectives, and the trials that no other beats in both are marked.
    """
    from adafed.study import load_study
    from adafed.tune import RATES

    study = load_study(experiment, profile)
    own = [] if rule is None else [f"rule.name={rule}"]
    config = study.config(None, None, [*own, *(settings or []), *_workers(workers)])
    where = out or Path("runs") / f"{study.name}-tune" / config.rule.name
    given = RATES if rates is None else tuple(_numbers(rates, "--rates", float))
    _searched(config, where, quiet, form, objective=objective.value, seeds=_numbers(seeds, "--seeds", int),
              rates=given, trials=trials)  # fmt: skip


@app.command()
def reproduce(
    name: Annotated[str | None, typer.Argument(help="A table or figure of the paper; --list shows them.")] = None,
    listed: Annotated[bool, typer.Option("--list", help="Every table and figure, its data and its cost.")] = False,
    profile: Annotated[str, typer.Option(help="paper, laptop or another of the experiment's profiles.")] = "laptop",
    methods: Annotated[list[str] | None, typer.Option("--method", "-m", help="Only these rows. Repeatable.")] = None,
    seeds: Seeds = None,
    rounds: Annotated[int | None, typer.Option(min=1, help="Instead of the profile's.")] = None,
    sweep: Annotated[bool, typer.Option("--gamma-sweep", help="AdaFed for every gamma of the paper's grid.")] = False,
    tuned: Annotated[str | None, typer.Option("--tune", metavar="METHOD", help="Search the paper's grid.")] = None,
    data_dir: Annotated[Path | None, typer.Option(help="Where the data sets are. Default: ADAFED_DATA.")] = None,
    download: Annotated[bool, typer.Option("--download", help="Fetch the data from its publisher.")] = False,
    verify: Annotated[bool, typer.Option("--verify/--no-verify", help="Insist on the published files.")] = True,
    settings: Settings = None,
    jobs: Annotated[int, typer.Option(min=1, help="Runs at a time, each in a process of its own.")] = 1,
    workers: Workers = None,
    out: Annotated[Path | None, typer.Option(help="Where the runs go. Default: runs/reproduce/NAME-PROFILE.")] = None,
    form: Printed = Form.table,
    quiet: Quiet = False,
) -> None:
    """Run one table or figure of the paper and print our numbers beside the printed ones.

    Printed numbers that cannot be true are marked and explained. The same command goes on where it was stopped.
    """
    from adafed import reproduce as work

    if data_dir is not None:
        os.environ["ADAFED_DATA"] = str(data_dir.expanduser().absolute())
    if listed or name is None:
        _print_rows("tables and figures; hours for one seed on two cores", *work.listing())
        return
    request = work.Request(name, profile, methods, _seeds(seeds, ()), rounds, [*(settings or []), *_workers(workers)],
                           out, sweep, download, verify)  # fmt: skip
    if tuned is not None:
        config, grid, where = work.tuning(request, tuned)
        _searched(config, where, quiet, form, grid=grid, rates=(config.server.rate,))
        return
    plan = work.planned_for(request)
    for line in plan.notes:
        errors.print(line, style="yellow")
    stopped = _watched(plan.runs, quiet=quiet, jobs=jobs)
    for table in plan.tables():
        _print(table, form)
    if stopped:
        errors.print("stopped; the same command goes on where it was", style="yellow")
        raise typer.Exit(130)
    for path in plan.drawn():
        console.print(str(path))


@app.command()
def show(
    directories: Annotated[list[Path], typer.Argument(metavar="DIR...", help="Run directories.")],
    part: Annotated[str, typer.Option(help="test or validation.")] = "test",
    worst: Annotated[int, typer.Option(min=0, help="How many of the worst clients to list, for one run.")] = 10,
    tail: Annotated[bool, typer.Option("--tail", help="Average over the last tenth of the rounds.")] = False,
    form: Printed = Form.table,
) -> None:
    """Look at runs: one in detail with its worst clients, or several in one table."""
    from adafed.compare import comparison
    from adafed.report.clients import worst_clients
    from adafed.runs.summary import COLUMNS, USUAL, summarise

    if part not in ("test", "validation"):
        raise AdafedError(f"--part is {part!r}; it must be test or validation")
    found = [summarise(directory, part) for directory in directories]
    alone = len(found) == 1
    names = [one.label if alone else f"{one.label}, seed {one.config.seed}" for one in found]
    columns = tuple(COLUMNS) if alone and form is not Form.table else USUAL
    title = f"{found[0].path}: round {found[0].rounds} of {found[0].config.rounds}" if alone else ""
    _print(comparison(title, list(zip(names, found, strict=True)), columns, tail=tail), form)
    if alone and worst and form is Form.table:
        _print(worst_clients(directories[0], worst, part), form)


@app.command("list")
def list_(
    what: Annotated[
        str, typer.Argument(help="rules, optimizers, schedules, data, partitions, models or metrics.")
    ] = "rules",
) -> None:
    """What there is to choose from, with options and defaults."""
    from adafed.report.catalogue import SUBJECTS

    if what not in SUBJECTS:
        raise AdafedError(f"there is no list of {what!r}; there are {', '.join(SUBJECTS)}")
    _print_rows(what, *SUBJECTS[what]())


@app.callback(invoke_without_command=True)
def _root(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    if version:
        from adafed import __version__

        console.print(__version__)
        raise typer.Exit


def _train(config: Any, directory: Path, quiet: bool) -> None:
    """One run to its end or to Ctrl-C, then its fairness."""
    from adafed.runs.summary import label
    from adafed.simulate import Simulation

    name = f"{label(config)}, seed {config.seed}"
    with _display(quiet) as (display, stopped), Simulation(config, directory=directory) as simulation:
        if simulation.state.round:
            errors.print(f"going on after round {simulation.state.round}")
        for record in simulation.rounds():
            display.show(name, config.rounds, record.round, record)
            if record.skipped:
                errors.print(f"round {record.round} changed nothing: {record.skipped}", style="yellow")
            if stopped:
                break
        last = simulation.state.round
    if last < config.rounds:
        errors.print(f"stopped after round {last}; go on with: adafed resume {directory}", style="yellow")
        raise typer.Exit(130)
    _finished(config, directory, quiet)


def _train_on_flower(config: Any, directory: Path, nodes: int | None, quiet: bool) -> None:
    """The same on Flower's simulation engine. Killed or interrupted, --continue goes on after the last saved round."""
    from adafed.flower import need_flower
    from adafed.report.progress import Display
    from adafed.runs.summary import label

    need_flower()
    from adafed.flower.ray import simulate_on_ray

    name = f"{label(config)}, seed {config.seed}"
    with Display(errors, quiet=quiet) as display:
        simulate_on_ray(config, directory, nodes=nodes,
                        watch=lambda record: display.show(name, config.rounds, record.round, record))  # fmt: skip
    _finished(config, directory, quiet)


def _finished(config: Any, directory: Path, quiet: bool) -> None:
    from adafed.compare import comparison
    from adafed.runs.summary import USUAL, label, summarise

    if not quiet:
        name = f"{label(config)}, seed {config.seed}"
        console.print(comparison(name, [(label(config), summarise(directory))], USUAL).rich())
        console.print(f"saved in {directory}")


def _searched(config: Any, where: Path, quiet: bool, form: Form, **search: Any) -> None:
    """A hyper-parameter search under the display, then its table and the best choice as settings."""
    from adafed.tune import search_table, tune

    with _display(quiet) as (display, stopped):

        def watch(choice: dict[str, float], seed: int, record: Any) -> None:
            told = ", ".join(f"{key.partition('.')[2]}={value:g}" for key, value in choice.items())
            display.show(f"{told}, seed {seed}", config.rounds, record.round, record)
            if stopped:
                raise KeyboardInterrupt

        found = tune(config, where, watch=watch, **search)
    _print(search_table(found, search.get("objective", "worst_10")), form)
    for best in found.best:
        console.print("  ".join(f"--set {key}={value:g}" for key, value in best.choice.items()), style="bold")


def _watched(runs: Any, *, quiet: bool, jobs: int) -> bool:
    """Do the runs under one display. True if Ctrl-C ended it."""
    from adafed.compare import run_all

    with _display(quiet) as (display, stopped):

        def watch(one: Any, round_: int, record: Any) -> None:
            display.show(f"{one.method}, seed {one.config.seed}", one.config.rounds, round_, record)
            if stopped:
                raise KeyboardInterrupt

        try:
            run_all(runs, watch, jobs=jobs)
        except KeyboardInterrupt:
            return True
    return False


class _display:
    """The progress display together with the Ctrl-C that lets a round end."""

    def __init__(self, quiet: bool) -> None:
        from adafed.report.progress import Display, stop_after_the_round

        self._display = Display(errors, quiet=quiet)
        self._stop = stop_after_the_round(errors)

    def __enter__(self) -> tuple[Any, Any]:
        return self._display.__enter__(), self._stop.__enter__()

    def __exit__(self, *given: Any) -> None:
        self._stop.__exit__(*given)
        self._display.__exit__(*given)


def _print(table: Any, form: Form) -> None:
    if form is Form.table:
        console.print(table.rich())
    else:
        sys.stdout.write(table.rendered(form.value))


def _print_rows(title: str, heads: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    table = RichTable(title=title, title_justify="left", show_lines=False)
    for head in heads:
        table.add_column(head, overflow="fold")
    for row in rows:
        table.add_row(*row)
    console.print(table)


def _workers(workers: int | None) -> list[str]:
    return [] if workers is None else [f"run.workers={workers}"]


def _known(names: list[str] | None, there: dict[str, Any]) -> bool:
    for name in names or []:
        if name not in there:
            raise AdafedError(f"--method is {name!r}; the experiment has {', '.join(there) or 'none'}")
    return True


def _seeds(text: str | None, default: tuple[int, ...]) -> list[int]:
    return list(default) if text is None else _numbers(text, "--seeds", int)


def _numbers(text: str, option: str, kind: Any) -> list[Any]:
    try:
        return [kind(word) for word in text.split(",")]
    except ValueError:
        raise AdafedError(f"{option} is {text!r}; it must be numbers with commas between, as in 0,1,2") from None


def _toml(text: str) -> dict[str, Any]:
    import tomllib

    return tomllib.loads(text)


def main() -> None:
    """Every mistake of the user's ends in one sentence and exit code 2."""
    try:
        app()
    except AdafedError as error:
        errors.print(f"adafed: {error}", style="red", markup=False, highlight=False, soft_wrap=True)
        sys.exit(2)
    except KeyboardInterrupt:
        errors.print("interrupted; finished rounds are saved", style="yellow")
        sys.exit(130)
