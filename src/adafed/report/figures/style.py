"""How figures look: readable in grey (line styles and markers beside colour), the same bytes for the same numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure

from adafed.files import full_disk_in_a_sentence

Vector = npt.NDArray[np.float64]
FORMATS = ("png", "svg", "pdf")
COLUMN, PAGE = 3.4, 7.0  # inches: a column and a page of a paper

# Okabe and Ito's colours, ordered so that neighbours differ in lightness too.
COLOURS = ("#000000", "#D55E00", "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#7F7F7F", "#8B4513", "#6A5ACD")
DASHES: tuple[Any, ...] = (
    "-", "--", ":", "-.", (0, (5, 1, 1, 1, 1, 1)), (0, (7, 2)), (0, (3, 1)), (0, (1, 3)), (0, (9, 1, 2, 1)),
    (0, (2, 2)),
)  # fmt: skip
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*", "<", ">")
LAST = "AdaFed"  # drawn in black and on top wherever it is


@contextmanager
def publication() -> Iterator[None]:
    settings: Any = {
        "font.family": "serif",
        "font.size": 8,
        "axes.titlesize": 8,
        "axes.labelsize": 8,
        "legend.fontsize": 7,
        "xtick.labelsize": 7,
        "ytick.labelsize": 7,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "grid.linewidth": 0.4,
        "grid.alpha": 0.5,
        "axes.axisbelow": True,
        "lines.linewidth": 1.2,
        "lines.markersize": 3.5,
        "legend.frameon": False,
        "figure.dpi": 150,
        "savefig.dpi": 300,
        "savefig.bbox": "tight",
        "svg.hashsalt": "adafed",
        "svg.fonttype": "none",
        "pdf.fonttype": 42,
    }
    with mpl.rc_context(settings):
        yield


def look(methods: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Colour, dashes and marker for each method; AdaFed is the black solid line."""
    others = [method for method in methods if method != LAST]
    looks = {}
    for place, method in enumerate(others, 1 if LAST in methods else 0):
        looks[method] = _look(place)
    if LAST in methods:
        looks[LAST] = _look(0) | {"zorder": 5, "linewidth": 1.6}
    return {method: looks[method] for method in methods}


def _look(place: int) -> dict[str, Any]:
    n = len(COLOURS)
    return {"color": COLOURS[place % n], "linestyle": DASHES[place % n], "marker": MARKERS[place % n]}


def smooth(values: Vector, share: float = 0.05) -> Vector:
    """A centred moving mean over so large a share of the values, shorter at the ends; gaps are left out."""
    half = int(len(values) * share / 2)
    if half < 1:
        return values
    known = ~np.isnan(values)
    sums = np.concatenate([[0.0], np.cumsum(np.where(known, values, 0.0))])
    counts = np.concatenate([[0], np.cumsum(known)])
    start = np.maximum(np.arange(len(values)) - half, 0)
    stop = np.minimum(np.arange(len(values)) + half + 1, len(values))
    with np.errstate(invalid="ignore"):
        means: Vector = (sums[stop] - sums[start]) / (counts[stop] - counts[start])
    return means


def spaced(length: int, place: int, marks: int = 7) -> tuple[int, int]:
    """`markevery`: a few markers on each line, not above each other."""
    every = max(1, length // marks)
    return (place * every // 8) % every, every


def save_described(figure: Figure, path: Path, told: str) -> None:
    """One SVG that says in its description what it was made from."""
    figure.savefig(path, format="svg", metadata={"Date": None, "Description": told})


def save(figure: Figure, stem: Path) -> list[Path]:
    """Without dates, so that the same numbers give the same files."""
    with full_disk_in_a_sentence(stem):
        stem.parent.mkdir(parents=True, exist_ok=True)
    metadata: dict[str, dict[str, Any]] = {
        "png": {"Software": None},
        "svg": {"Date": None},
        "pdf": {"CreationDate": None, "Producer": None, "Creator": None},
    }
    paths = []
    for form in FORMATS:
        path = stem.with_name(f"{stem.name}.{form}")
        figure.savefig(path, format=form, metadata=metadata[form])
        paths.append(path)
    return paths
