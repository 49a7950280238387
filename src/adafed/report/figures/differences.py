"""Differences to one method with their intervals, a panel a set-up: what a comparison found, at a glance."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from adafed.report.figures import Differences, Dot
from adafed.report.figures.style import COLOURS

ROOM = 1.25  # an axis is as long as the farthest dot, times this; longer intervals end in an arrow
ASTRAY = 8.0  # times the median difference: one that is farther off would press the others into a line, and is told
LOOKS = (
    {"marker": "o", "color": COLOURS[2], "markerfacecolor": COLOURS[2]},
    {"marker": "s", "color": COLOURS[1], "markerfacecolor": "white"},
)


def draw(panels: Sequence[Differences], measures: Sequence[str], to: str, across: int = 3) -> Figure:
    """`across` panels stand beside each other."""
    down = math.ceil(len(panels) / across)
    rows = [panels[row * across : (row + 1) * across] for row in range(down)]
    heights = [0.9 + 0.2 * max(len(panel.lines) for panel in row) for row in rows]
    figure = Figure(figsize=(3.5 * across, sum(heights) + 0.6), layout="constrained")
    grid = figure.subplots(down, across, squeeze=False, height_ratios=heights)
    for drawn, row in zip(grid, rows, strict=True):
        most = max(len(panel.lines) for panel in row)
        for axes, panel in zip(drawn, row, strict=False):
            _panel(axes, panel, most)
    for axes in list(grid.flat)[len(panels) :]:
        axes.set_axis_off()
    marks = [
        axes.plot([], [], linestyle="", markersize=5, label=measure, **look)[0]
        for measure, look in zip(measures, LOOKS, strict=False)
    ]
    title = f"difference to {to} in points, with its 95 % interval; right is better"
    figure.legend(handles=marks, loc="outside upper left", ncols=len(measures), title=title, alignment="left")
    return figure


def _panel(axes: Axes, panel: Differences, most: int) -> None:
    """With room for `most` lines, so that lines of a row stand at the same heights."""
    found = [dot for line in panel.lines for dot in line.dots if dot is not None]
    sizes = [abs(dot.mean) for dot in found]
    most_shown = ASTRAY * statistics.median(sizes) if sizes else 0.0
    far = ROOM * max((size for size in sizes if size <= most_shown), default=1.0) or 1.0
    near = [dot.half for dot in found if dot.half is not None]
    far = max(far, 2.0 * sorted(near)[len(near) // 2] if near else 0.0)
    axes.axvline(0.0, color="black", linewidth=0.8)
    for place, line in enumerate(panel.lines):
        if place % 2:
            axes.axhspan(place - 0.5, place + 0.5, color="0.96", linewidth=0)
        for part, (dot, look) in enumerate(zip(line.dots, LOOKS, strict=False)):
            if dot is not None:
                _dot(axes, dot, place - 0.16 + 0.32 * part, far, look)
    axes.set_yticks(range(len(panel.lines)), [line.method for line in panel.lines])
    axes.set_ylim(most - 0.5, -0.5)
    axes.set_xlim(-far, far)
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    axes.set_title(panel.title, loc="left", fontweight="bold")


def _dot(axes: Axes, dot: Dot, height: float, far: float, look: dict[str, str]) -> None:
    if abs(dot.mean) > far:
        edge = math.copysign(far, dot.mean)
        axes.plot([edge], [height], marker="<" if edge < 0 else ">", color=look["color"], markersize=4, clip_on=False)
        axes.annotate(
            f"{dot.mean:+.0f}",
            (edge, height),
            xytext=(-math.copysign(5, edge), 0),
            textcoords="offset points",
            ha="left" if edge < 0 else "right",
            va="center",
            fontsize=7,
            color=look["color"],
        )
        return
    if dot.half is not None:
        ends = (dot.mean - dot.half, dot.mean + dot.half)
        shown = (max(ends[0], -far), min(ends[1], far))
        axes.plot(shown, (height, height), color=look["color"], linewidth=1.1, solid_capstyle="butt")
        for end, seen, mark in zip(ends, shown, "<>", strict=True):
            if end != seen:
                axes.plot([seen], [height], marker=mark, color=look["color"], markersize=4, clip_on=False)
    axes.plot([dot.mean], [height], linestyle="", markersize=4, zorder=4, **look)  # type: ignore[arg-type]
