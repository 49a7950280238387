"""How many clients have which test accuracy, in the last evaluation of the first seed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from adafed.errors import AdafedError
from adafed.report.figures import Panel
from adafed.report.figures.style import COLUMN, Vector, look
from adafed.runs.store import Store

BINS = np.arange(0.0, 101.0, 5.0)


def draw(panels: Sequence[Panel]) -> Figure:
    """One method below the other on the same axis: overlapping bars cannot be told apart in grey."""
    (panel,) = panels
    figure = Figure(figsize=(COLUMN, 0.7 + 1.0 * len(panel.runs)), layout="constrained")
    grid = figure.subplots(len(panel.runs), 1, squeeze=False, sharex=True, sharey=True)[:, 0]
    looks = look(list(panel.runs))
    for axes, (method, directories) in zip(grid, panel.runs.items(), strict=True):
        values = _accuracies(directories[0])
        style = looks[method]
        axes.hist(values, bins=BINS, color="0.82", edgecolor=style["color"], linewidth=0.8)
        axes.axvline(values.mean(), color=style["color"], linestyle="--", linewidth=1.0)
        axes.set_title(f"{method}: mean {values.mean():.1f}, σ {values.std():.1f}", loc="left", fontsize=7)
        axes.set_ylabel("clients")
    figure.suptitle(panel.title, fontsize=8)
    grid[-1].set_xlabel("test accuracy, %")
    return figure


def _accuracies(directory: Path) -> Vector:
    store = Store(directory / "rounds.sqlite", read_only=True)
    try:
        evaluations = [record.evaluation() for record in store.records(evaluated=True)]
    finally:
        store.close()
    if not evaluations or evaluations[-1] is None:
        raise AdafedError(f"{directory} has no evaluation yet")
    return np.array([100.0 * s.accuracy for _, s in evaluations[-1].scores if s.accuracy is not None])
