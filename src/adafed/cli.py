"""The command line. Commands are thin: they read options, call the library and print."""

from __future__ import annotations

import os
import sys
from io import TextIOWrapper
from typing import Annotated

import typer

from adafed.commands import attacks, report, searches, studies, training
from adafed.commands.flower import app as flower
from adafed.commands.shared import console, errors, print_rows
from adafed.errors import AdafedError
from adafed.studies.lifeline import end_with_parent

app = typer.Typer(
    name="adafed",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    help="Fair federated learning: train with AdaFed and other fair methods, and see how the model treats "
    "its worst clients.\n\nStart with `adafed demo`; then `adafed run experiment.toml`, or one of "
    "`adafed list experiments` by name.",
)
for command in (
    studies.demo,
    training.run,
    training.resume,
    studies.compare,
    attacks.attack,
    searches.tune,
    searches.reproduce,
    studies.results,
    training.show,
    report.report,
):
    app.command()(command)
app.add_typer(flower, name="flower")


@app.command("list")
def list_(
    what: Annotated[
        str,
        typer.Argument(
            help="rules, client-rules, guards, lies, optimizers, schedules, data, partitions, models, metrics or "
            "experiments."
        ),
    ] = "rules",
) -> None:
    """What there is to choose from, with options and defaults."""
    from adafed.report.catalogue import SUBJECTS

    if what not in SUBJECTS:
        raise AdafedError(f"there is no list of {what!r}; there are {', '.join(SUBJECTS)}")
    print_rows(what, *SUBJECTS[what]())


@app.callback(invoke_without_command=True)
def _root(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    if version:
        from adafed import __version__

        console.print(__version__)
        raise typer.Exit


def main() -> None:
    """Every mistake of the user's ends in one sentence and exit code 2."""
    end_with_parent()
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal without Greek letters still shows the numbers
    try:
        app()
    except AdafedError as error:
        errors.print(f"adafed: {error}", style="red", highlight=False, soft_wrap=True)
        sys.exit(2)
    except BrokenPipeError:  # whoever read the output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        errors.print(f"adafed: {where}{error.strerror or error}", style="red", highlight=False, soft_wrap=True)
        sys.exit(2)
    except KeyboardInterrupt:
        errors.print("interrupted; finished rounds are saved", style="yellow")
        sys.exit(130)
