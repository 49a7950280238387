"""What commands on many runs share: options, doing the runs under one display, and keeping what they found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from adafed.commands.report import written
from adafed.commands.shared import Progress, errors

if TYPE_CHECKING:
    from adafed.config.studies import Study
    from adafed.rounds.records import RoundRecord
    from adafed.studies.compare import Run

Keep = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Add the evaluations of all runs to a small file, for `adafed results`."),
]
Jobs = Annotated[
    int, typer.Option(min=1, help="Runs at a time; above 1, each in one process of its own, without workers.")
]


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


def write_page_of(
    runs: Sequence[Run],
    folder: Path,
    place: Path,
    title: str,
    notes: Sequence[str],
    *,
    tail: bool = False,
    kept: bool = True,
) -> None:
    """One page of all runs of a study that are there, and a word in its folder on how the study is called."""
    from adafed.page import Named, Report, describe_study, gathered
    from adafed.studies.compare import begun

    there = [Named(run.directory, run.method) for run in runs if begun(run)]

    def made() -> Report:
        describe_study(folder, title, {run.directory.parent.name: run.method for run in runs}, notes)
        found = gathered(there, title=title, tail=tail, notes=notes)
        return found if kept else replace(found, runs=tuple(replace(run, source="not kept") for run in found.runs))

    if there:
        written(made, place)


def can_keep(study: Study, runs: Sequence[Run], path: Path | None, told: dict[str, str]) -> None:
    """What is wrong with --keep is told before the runs, not after."""
    from adafed.studies.kept import kept_for, require_alike

    if path is not None:
        old = kept_for(path, study.title or study.name, told)
        if old is not None:
            require_alike(old, runs, path)


def keep_runs(study: Study, runs: Sequence[Run], path: Path, told: dict[str, str]) -> None:
    from adafed.studies import kept

    found = kept.gathered(study.title or study.name, study.columns, runs, told)
    kept.keep(found, path)
    left = len(runs) - len(found.runs)
    errors.print(f"kept in {path}" + (f", but for {left} of {len(runs)} runs that are not finished" if left else ""))
