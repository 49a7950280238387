"""The fairness report: one page from runs, studies and kept results; served while a run goes on; figures and tables."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from adafed.commands.shared import MEASURES, console, errors, measures_from
from adafed.errors import AdafedError

if TYPE_CHECKING:
    from adafed.page import Report

NoReport = Annotated[bool, typer.Option("--no-report", help="Write no page.")]
PAGE = "report.html"


def report(
    paths: Annotated[
        list[Path], typer.Argument(metavar="RUN...", help="Run directories, folders of studies, or kept results files.")
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Where the page goes. Default: report.html in the first folder, or beside a kept results file.",
        ),
    ] = None,
    tail: Annotated[bool, typer.Option("--tail", help="Average over the last tenth of the rounds.")] = False,
    against: Annotated[
        str | None, typer.Option(help="The method others are compared with. Default: FedAvg, or the first.")
    ] = None,
    columns: Annotated[str | None, typer.Option(help=MEASURES)] = None,
    title: Annotated[str | None, typer.Option(help="Of the page. Default: the study's.")] = None,
    figures: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Also draw the pictures as PNG, SVG and PDF (extra: figures).")
    ] = None,
    tables: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Also write the tables as Markdown, LaTeX and CSV.")
    ] = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Serve the page on this machine alone and follow the run.")
    ] = False,
    port: Annotated[int, typer.Option(min=0, max=65535, help="For --watch; 0 takes a free one.")] = 0,
) -> None:
    """One page that opens in a browser, offline: who is treated worst, what fairness cost, and whether to trust it.

    It takes runs that are finished or going on. The page is one file with everything in it.
    """
    from adafed.page import gathered, write_page

    keys = None if columns is None else measures_from(columns)

    def made() -> Report:
        return gathered(paths, title=title, tail=tail, against=against, columns=keys)

    if watch:
        if figures is not None or tables is not None or out is not None:
            raise AdafedError("--watch writes no files; leave out --out, --figures and --tables")
        _serve(made, port)
        return
    found = made()
    console.print(f"page: {write_page(found, out or default_place(paths[0]))}", soft_wrap=True)
    if tables is not None:
        from adafed.page.tables import write_tables

        for path in write_tables(found, tables):
            console.print(str(path), soft_wrap=True)
    if figures is not None:
        from adafed.page.figures import write_figures

        for path in write_figures(found, figures):
            console.print(str(path), soft_wrap=True)


def default_place(path: Path) -> Path:
    """In the run's or the study's folder; beside a kept results file."""
    return path / PAGE if path.is_dir() else path.with_suffix(".html")


def _serve(made: Callable[[], Report], port: int) -> None:
    from adafed.page.watch import serving

    with serving(made, port) as server:
        console.print(f"page: {server.address} (Ctrl-C ends it)", soft_wrap=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            console.print("no longer served")


def written(make: Callable[[], Report], place: Path) -> None:
    """The page at the end of a command, told beside its output, which may go elsewhere as CSV. What goes wrong with it
    is told and costs nothing else."""
    from adafed.page import write_page

    try:
        path = write_page(make(), place)
    except (AdafedError, OSError) as error:
        errors.print(f"no page was written: {error}", style="yellow", soft_wrap=True)
        return
    errors.print(f"page: {path}", soft_wrap=True)
