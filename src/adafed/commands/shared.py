"""What the commands share: consoles, options, the progress display, and printing."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table as RichTable
from rich.text import Text

from adafed.errors import AdafedError, quoted
from adafed.visible import visible

if TYPE_CHECKING:
    from adafed.report.progress import Display, Stopped
    from adafed.report.tables import Table

Number = TypeVar("Number", int, float)
WIDE = 160  # columns where nobody is watching: a table in a log must not lose its cells


class SafeConsole(Console):
    """Shows what would steer the terminal, wherever it comes from: all that is printed passes here."""

    def render_str(self, text: str, **how: Any) -> Text:
        """Strings, before they are measured."""
        return super().render_str(visible(text), **how)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """What was no string: the display of progress, say."""
        for segment in super().render(renderable, options):
            text, style, control = segment
            yield segment if control or (safe := visible(text)) == text else Segment(safe, style)


# No markup: names, paths and sentences are the user's, and may have brackets.
console = SafeConsole(markup=False, width=None if sys.stdout.isatty() else WIDE)
errors = SafeConsole(markup=False, stderr=True, width=None if sys.stderr.isatty() else WIDE)


class Form(StrEnum):
    """How a table is printed."""

    table = "table"
    markdown = "markdown"
    latex = "latex"
    csv = "csv"


Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Set any key of the experiment, as in rule.gamma=5. Repeatable."),
]
Experiment = Annotated[
    Path,
    typer.Argument(
        metavar="EXPERIMENT",
        help="A TOML file (docs/configuration.md), or the name of a packaged one: `adafed list experiments`.",
    ),
]
Profile = Annotated[str | None, typer.Option(help="One of the experiment's profiles.")]
Workers = Annotated[
    int | None,
    typer.Option(
        min=0,
        help="Worker processes; 0: all in this one. The result is the same to the bit. Default: the experiment's own.",
    ),
]
Seeds = Annotated[str | None, typer.Option(help="Seeds, as in 0,1,2. Default: the experiment's own.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress display.")]
Printed = Annotated[Form, typer.Option("--format", "-f", help="How to print the table.")]
RULES = (  # of --rule
    "A rule, as in adafed:gamma=5,hull=simplex, in place of the experiment's methods, or beside those of --method. "
    "Repeatable."
)
MEASURES = "Measures, as in mean,std,worst_10; your own as module:attribute."


class Progress:
    """The progress display together with the Ctrl-C that lets a round end."""

    def __init__(self, quiet: bool) -> None:
        from adafed.report.progress import Display, stop_after_the_round

        self._display = Display(errors, quiet=quiet)
        self._stop = stop_after_the_round(errors)

    def __enter__(self) -> tuple[Display, Stopped]:
        return self._display.__enter__(), self._stop.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.__exit__(kind, error, trace)
        self._display.__exit__(kind, error, trace)


def print_table(table: Table, form: Form) -> None:
    if form is Form.table:
        console.print(table.rich())
    else:
        sys.stdout.write(visible(table.rendered(form.value)))


def print_rows(title: str, heads: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    table = RichTable(title=title, title_justify="left", show_lines=False)
    for head in heads:
        table.add_column(head, overflow="fold")
    for row in rows:
        table.add_row(*row)
    console.print(table)


def workers_setting(workers: int | None) -> list[str]:
    return [] if workers is None else [f"run.workers={workers}"]


def require_known(names: list[str] | None, there: Iterable[str]) -> bool:
    for name in names or []:
        if name not in there:
            raise AdafedError(f"--method is {name!r}; the experiment has {quoted(there)}")
    return True


def seeds_from(text: str | None, default: tuple[int, ...]) -> list[int]:
    return list(default) if text is None else different(text)


def different(text: str) -> list[int]:
    seeds = numbers_from(text, "--seeds", int)
    if len(set(seeds)) < len(seeds) or min(seeds) < 0:
        raise AdafedError(f"--seeds is {text!r}; they must be different and at least 0, as in 0,1,2")
    return seeds


def numbers_from(text: str, option: str, kind: Callable[[str], Number]) -> list[Number]:
    try:
        return [kind(word) for word in text.split(",")]
    except ValueError:
        raise AdafedError(f"{option} is {text!r}; it must be numbers with commas between, as in 0,1,2") from None


def measures_from(text: str, option: str = "--columns") -> tuple[str, ...]:
    from adafed.metrics import metric

    keys = tuple(key.strip() for key in text.split(","))
    for key in keys:
        metric(key, option)
    return keys
