"""What the kept sweeps over gamma say together: a row a set-up, a column a gamma, ties as ties; and a figure of them.

A sweep is a kept file whose methods are one rule at several values of gamma, as `adafed reproduce NAME-gamma --keep`
writes it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from pathlib import Path

from adafed.report.figures import Sweep, SweepLine
from adafed.studies.kept import load
from adafed.studies.overview import FAIREST, MEASURES, Setup, cell, label, line

VALUE = re.compile(r"AdaFed, gamma=([\d.]+)")
SHOWN = (FAIREST, "mean")  # of the figure


def sweeps(folder: Path) -> list[Setup]:
    """The sweeps of a folder of kept files, by title, without rows as printed, whose gamma is the step's too."""
    found = []
    for file in sorted(folder.glob("*.json")):
        kept = load(file)
        values = [method for method in kept.methods() if VALUE.fullmatch(method)]
        if values and all(", gamma=" in method for method in kept.methods()):
            found.append(Setup(file.stem, kept.only(values)))
    return sorted(found, key=lambda setup: (setup.title, setup.name))


def gammas(setup: Setup) -> dict[float, str]:
    """From each value to the method that has it, in order."""
    found = {float(match[1]): method for method in setup.methods() if (match := VALUE.fullmatch(method))}
    return dict(sorted(found.items()))


def titled(setup: Setup) -> str:
    """Without what all have in common."""
    return setup.title.replace(", gamma", "")


def table(found: Sequence[Setup]) -> str:
    """As Markdown: bold are the best of a row and what its paired interval does not tell apart from it."""
    across = sorted({gamma for setup in found for gamma in gammas(setup)})
    labels = "<br>".join(label(key).replace(" ", "&nbsp;") for key in MEASURES)
    lines = [line(["set-up", "", *(f"{gamma:g}" for gamma in across)]), line(["---", "---", *("---:" for _ in across)])]
    for setup in found:
        best = {key: setup.best(key) for key in MEASURES}
        there = gammas(setup)
        cells = [cell(setup, there[gamma], best) if gamma in there else "" for gamma in across]
        lines.append(line([f"{titled(setup)}<br>{setup.seeds} seeds<br>`{setup.name}`", labels, *cells]))
    return "\n".join(lines) + "\n"


def panels(found: Sequence[Setup]) -> list[Sweep]:
    """For each sweep the measures of the figure over gamma, every seed of them."""
    made = []
    for setup in found:
        there = gammas(setup)
        shown = []
        for key in SHOWN:
            seeds = [[run.tail.get(key) for run in setup.methods()[method].values()] for method in there.values()]
            shown.append(SweepLine(label(key), tuple(tuple(v for v in one if v is not None) for one in seeds)))
        made.append(Sweep(f"{titled(setup)} ({setup.seeds} seeds)", tuple(there), tuple(shown)))
    return made


def drawn(found: Sequence[Setup], path: Path, across: int = 3) -> None:
    """One SVG, which says in its description which numbers it shows."""
    from adafed.report.figures import style
    from adafed.report.figures.sweeps import draw

    figures = panels(found)
    with style.publication():
        style.save_described(draw(figures, across), path, fingerprint(figures))


def fingerprint(figures: Sequence[Sweep]) -> str:
    """Of the numbers of a figure, to a thousandth."""
    told = [
        [
            panel.title,
            panel.values,
            [[one.label, [[f"{v:.3f}" for v in seeds] for seeds in one.seeds]] for one in panel.lines],
        ]
        for panel in figures
    ]
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()
