"""Figure 1 (b) and (c): two gradients, their convex hull, its shortest vector, and AdaFed's for several gamma."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from adafed.algebra.hulls import affine_point, simplex_point
from adafed.report.figures import Panel
from adafed.report.figures.style import COLOURS, MARKERS, PAGE, Vector

GAMMAS = (0.0, 0.5, 1.0, 2.0)
LOSSES = np.array([1.0, 2.0])  # client 2 is worse off


def draw(_: Sequence[Panel]) -> Figure:
    figure = Figure(figsize=(PAGE, 2.4), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    unequal = np.array([[0.2, 0.75], [1.7, 0.15]])
    _hull(left, unequal, r"(b) $\|g_1\| < \|g_2\|$: $d$ leans to $g_1$")
    angle = np.radians([75.0, 15.0])
    equal = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    _hull(middle, equal, r"(c) $\|g_1\| = \|g_2\| = 1$: $d$ bisects")
    _adafed(right, unequal)
    return figure


def _hull(axes: Axes, gradients: Vector, title: str) -> None:
    _gradients(axes, gradients)
    coefficients = simplex_point(gradients @ gradients.T, np.ones(2))
    shortest = coefficients @ gradients
    _arrow(axes, shortest, COLOURS[1], "--")
    axes.plot(*shortest, MARKERS[1], color=COLOURS[1], zorder=4)
    axes.annotate(r"$d$", tuple(shortest), xytext=(4, -9), textcoords="offset points", color=COLOURS[1])
    axes.set_title(title)
    _framed(axes)


def _adafed(axes: Axes, gradients: Vector) -> None:
    """AdaFed's d for losses (1, 2): the larger gamma, the faster client 2's loss falls along it."""
    _gradients(axes, gradients)
    gram = gradients @ gradients.T
    for place, gamma in enumerate(GAMMAS):
        weights = LOSSES**gamma / np.mean(LOSSES**gamma)
        coefficients = affine_point(gram, weights)
        assert coefficients is not None
        point = coefficients @ gradients
        rates = gradients @ point
        axes.plot([0, point[0]], [0, point[1]], color=COLOURS[place + 1], linewidth=0.8, linestyle="--")
        axes.plot(*point, MARKERS[place], color=COLOURS[place + 1], markersize=5, zorder=4,
                  label=rf"$\gamma={gamma:g}$: $g_k\!\cdot d$ = {rates[0]:.2f}, {rates[1]:.2f}")  # fmt: skip
    axes.set_title(r"AdaFed's $d$ for losses $f_1=1$, $f_2=2$")
    axes.legend(loc="upper right", handlelength=1.0, fontsize=6.5)
    _framed(axes)


def _gradients(axes: Axes, gradients: Vector) -> None:
    axes.plot(*gradients.T, color="0.75", linewidth=4, solid_capstyle="round", zorder=1, label="_hull")
    middle = gradients.mean(axis=0)
    axes.annotate("convex hull", tuple(middle), xytext=(2, 6), textcoords="offset points", fontsize=6.5, color="0.35")
    for name, gradient in zip(("$g_1$", "$g_2$"), gradients, strict=True):
        _arrow(axes, gradient, COLOURS[0], "-")
        axes.annotate(
            name, tuple(gradient), xytext=(-9, 5) if gradient[1] > gradient[0] else (3, 3), textcoords="offset points"
        )


def _arrow(axes: Axes, tip: Vector, colour: str, dashes: str) -> None:
    shape = {"arrowstyle": "-|>", "color": colour, "linestyle": dashes, "shrinkA": 0, "shrinkB": 0, "linewidth": 1.1}
    axes.annotate("", tuple(tip), xytext=(0, 0), arrowprops=shape)


def _framed(axes: Axes) -> None:
    axes.plot(0, 0, "k.", markersize=4)
    axes.set_xlim(-0.1, 2.0)
    axes.set_ylim(-0.1, 1.75)
    axes.set_aspect("equal", adjustable="box")
