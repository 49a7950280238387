"""The page's tables: each method's numbers, differences paired over the seeds, and every client."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path

import numpy as np

from adafed.files import full_disk_in_a_sentence, write_whole
from adafed.metrics import metric
from adafed.page.model import Report, Run, federations
from adafed.page.sentences import called, change
from adafed.report.tables import HALF, Cell, Column, Row, Table
from adafed.studies.results import interval, kept_column

FORMS = {"markdown": "md", "latex": "tex", "csv": "csv"}


def summary(report: Report) -> Table:
    """Rows are methods, cells are means over their seeds."""
    rows = []
    most = max((len(runs) for runs in report.methods.values()), default=0)
    for method, runs in report.methods.items():
        cells = tuple(Cell(tuple(report.values(method, key))) for key in report.columns)
        rows.append(Row(method, cells, runs[0].personalised))
    several = f", mean ± standard deviation over {most} seeds" if most > 1 else ""
    what = "the evaluations of the last tenth of the rounds, averaged" if report.tail else "the final model"
    notes = [f"{what}{several}", *report.notes]
    picked = tuple(map(kept_column, report.columns))
    if len(report.data) > 1:  # the best of numbers that do not compare is nothing
        picked = tuple(replace(one, better=0) for one in picked)
        notes.insert(0, f"on different data ({', '.join(report.data)}): these rows do not compare, so none is marked")
    if any(metric(key).percent for key in report.columns if key in _known(report)):
        notes.append("accuracies and σ_a in percent")
    if "floor" in report.columns:
        notes.append(
            "chance: the part of σ_a that clients with equal accuracy would show too, their test sets being small"
        )
    absent = [
        kept_column(key).label for key in report.columns if not any(report.values(m, key) for m in report.methods)
    ]
    if absent:
        notes.append(f"not recorded in these runs: {', '.join(absent)}")
    uneven = [f"{called(method)} {len(runs)}" for method, runs in report.methods.items() if len(runs) != most]
    if uneven:
        notes.append(f"fewer seeds: {', '.join(uneven)}")
    return Table(report.title, picked, tuple(rows), tuple(notes))


def _known(report: Report) -> set[str]:
    return {key for run in report.runs for key in run.evaluations}


def differences(report: Report) -> Table | None:
    """Every method minus the reference at the same seeds, with half the width of the 95 % interval."""
    other = report.reference
    rows = []
    for method, runs in report.methods.items():
        cells = []
        for key in report.columns:
            found = None if other is None or method == other else change(report, method, other, key)
            if found is None:
                cells.append(Cell(()))
            else:
                cells.append(interval(found.found, kept_column(key).digits, " *" if found.shown else ""))
        if method != other and any(cell.values for cell in cells):
            rows.append(Row(method, tuple(cells), runs[0].personalised))
    if not rows:
        return None
    picked = tuple(Column(one.label, 0, one.latex, one.digits, HALF) for one in map(kept_column, report.columns))
    note = "paired over the seeds, ± half the width of the 95 % interval; * it leaves out zero; one seed has none"
    return Table(f"difference to {other}", picked, tuple(rows), (note,))


def as_texts(report: Report) -> dict[str, str]:
    table = summary(report)
    return {ending: table.rendered(form) for form, ending in FORMS.items()}


# Clients

CLIENT_HEADS = ("data", "client", "method", "seed", "accuracy %", "loss", "test samples", "train samples", "labels",
                "drawn", "mean coefficient", "dropped", "why")  # fmt: skip


def client_lines(runs: Sequence[Run], tail: bool) -> Iterator[tuple[object, ...]]:
    """One line for a client and run; what is not known is empty."""
    for place, same in enumerate(federations(runs).values()):
        for run in same:
            clients = run.clients
            assert clients is not None
            for k, (client, accuracy) in enumerate(zip(clients.ids, run.client_accuracies(tail), strict=True)):
                labels = {} if clients.labels is None else clients.labels.get(k, {})
                yield (
                    place, client, run.method, run.seed, _number(accuracy, 4), _number(clients.loss[k]),
                    int(clients.test_samples[k]), _number(clients.train_samples[k], 0),
                    " ".join(f"{label}:{count}" for label, count in labels.items()), int(clients.drawn[k]),
                    _number(clients.coefficient[k]), int(clients.dropped[k]),
                    "; ".join(f"{why} ({times})" for why, times in clients.reasons.get(k, {}).items()),
                )  # fmt: skip


def clients_csv(report: Report) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(chain([CLIENT_HEADS], client_lines(report.runs, report.tail)))
    return out.getvalue()


def _number(value: float, digits: int | None = None) -> str:
    if not np.isfinite(value):
        return ""
    return f"{value:.6g}" if digits is None else f"{value:.{digits}f}"


def write_tables(report: Report, folder: Path) -> list[Path]:
    """The methods' numbers and their differences in three forms, and every client as CSV."""
    found = {"summary": summary(report), "differences": differences(report)}
    texts = {
        f"{name}.{ending}": table.rendered(form)
        for name, table in found.items()
        if table is not None
        for form, ending in FORMS.items()
    }
    if any(run.clients is not None for run in report.runs):
        texts["clients.csv"] = clients_csv(report)
    with full_disk_in_a_sentence(folder):
        folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        write_whole(folder / name, text.encode("utf-8", "replace"))
    return [folder / name for name in texts]
