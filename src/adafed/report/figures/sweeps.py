"""Measures over the values of gamma, a panel a set-up: means over the seeds, shaded from the lowest to the highest."""

from __future__ import annotations

import math
from collections.abc import Sequence

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from adafed.report.figures import Sweep
from adafed.report.figures.differences import LOOKS


def draw(panels: Sequence[Sweep], across: int = 3) -> Figure:
    """`across` panels stand beside each other. The values stand at equal distances: 0 has no logarithm."""
    down = math.ceil(len(panels) / across)
    figure = Figure(figsize=(2.6 * across, 2.1 * down + 0.4), layout="constrained")
    grid = figure.subplots(down, across, squeeze=False)
    marks: dict[str, Artist] = {}
    for axes, panel in zip(grid.flat, panels, strict=False):
        marks |= _panel(axes, panel)
    for axes in list(grid.flat)[len(panels) :]:
        axes.set_axis_off()
    for row in grid:
        row[0].set_ylabel("test accuracy, %")
    figure.legend(list(marks.values()), list(marks), loc="outside upper left", ncols=len(marks))
    return figure


def _panel(axes: Axes, panel: Sweep) -> dict[str, Artist]:
    places = list(range(len(panel.values)))
    marks: dict[str, Artist] = {}
    for shown, look in zip(panel.lines, LOOKS, strict=False):
        there = [(place, seeds) for place, seeds in zip(places, shown.seeds, strict=True) if seeds]
        at = [place for place, _ in there]
        low, high = [min(seeds) for _, seeds in there], [max(seeds) for _, seeds in there]
        axes.fill_between(at, low, high, color=look["color"], alpha=0.13, linewidth=0)
        (marks[shown.label],) = axes.plot(at, [sum(seeds) / len(seeds) for _, seeds in there], linewidth=1.1, **look)  # type: ignore[arg-type]
    axes.set_xticks(places, [f"{value:g}" for value in panel.values])
    axes.set_xlabel("gamma")
    axes.set_title(panel.title, loc="left", fontsize=7)
    return marks
