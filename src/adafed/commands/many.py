"""What commands on many runs share: options, doing the runs under one display, and keeping what they found."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from adafed.commands.shared import Progress, errors

if TYPE_CHECKING:
    from adafed.config.studies import Study
    from adafed.rounds.records import RoundRecord
    from adafed.studies.compare import Run

Keep = Annotated[Path | None, typer.Option(metavar="FILE", help="Add the evaluations of all runs to a small file.")]
Jobs = Annotated[int, typer.Option(min=1, help="Runs at a time, each in a process of its own.")]


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


def can_keep(study: Study, path: Path | None, told: dict[str, str]) -> None:
    """What is wrong with --keep is told before the runs, not after."""
    from adafed.studies.results import kept_for

    if path is not None:
        kept_for(path, study.title or study.name, told)


def keep_runs(study: Study, runs: Sequence[Run], path: Path, told: dict[str, str]) -> None:
    from adafed.studies import results

    results.keep(results.gathered(study.title or study.name, study.columns, runs, told), path)
    errors.print(f"kept in {path}")
