"""Lines over the rounds: rho_t, losses of two clients, ||d_t||, mean accuracy. Averages over seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from adafed.config.loading import load_kept
from adafed.errors import AdafedError
from adafed.report.figures import Curves, Panel
from adafed.report.figures.style import COLOURS, PAGE, Vector, look, smooth, spaced
from adafed.rounds.records import RoundRecord
from adafed.runs.store import Store

Series = tuple[Vector, Vector]  # rounds, and the value in each
Read = Callable[[Path], Series]


def rho(panels: Sequence[Panel]) -> Figure:
    """rho_t of every method, as a moving mean: of ten clients in a round it can only be a multiple of 10 %."""
    return _lines(panels, _rho, "improved, % (moving mean)", smoothed=True)


def accuracy(panels: Sequence[Panel]) -> Figure:
    return _lines(panels, _accuracy, "mean test accuracy, %", smoothed=False)


def worst_and_mean(panels: Sequence[Panel]) -> Figure:
    """The mean of all clients and of the worst twentieth, side by side."""
    twice = [Panel(f"{panel.title}: {what}", panel.runs) for panel in panels for what in ("mean", "worst 5 %")]
    reads = [read for _ in panels for read in (_accuracy, _worst)]
    return _lines(twice, reads, "test accuracy, %", smoothed=True)


def losses(panels: Sequence[Panel]) -> Figure:
    """The client whose first loss was the largest, and the one whose first loss was the smallest; a row a method."""
    methods = list(dict.fromkeys(method for panel in panels for method in panel.runs))
    figure = Figure(figsize=(PAGE, 0.3 + 2.0 * len(methods)), layout="constrained")
    grid = figure.subplots(len(methods), len(panels), squeeze=False)
    for row, method in zip(grid, methods, strict=True):
        for axes, panel in zip(row, panels, strict=True):
            _two_losses(axes, _extreme_clients(panel.runs[method][0]))
            axes.set_title(f"{panel.title}: {method}")
        row[0].set_ylabel("training loss")
    for axes in grid[-1]:
        axes.set_xlabel("round")
    return figure


def _two_losses(axes: Axes, chosen: dict[str, tuple[Vector, Vector]]) -> None:
    largest = 0.0
    for place, (name, (rounds, values)) in enumerate(chosen.items()):
        style = look(["high", "low"])["high" if place == 0 else "low"]
        known = np.isfinite(values)
        axes.plot(rounds[known], values[known], color=style["color"], linewidth=0.5, alpha=0.35)
        smoothed = smooth(values[known], 0.1)
        axes.plot(rounds[known], smoothed, label=name, markevery=spaced(int(known.sum()), 4 * place), **style)
        largest = max([largest, *values[known]])
    axes.set_ylim(0, 1.06 * largest)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.legend()


PRINTED = ", as printed"  # how the second line of a case is called


def norms(panels: Sequence[Panel]) -> Figure:
    """||d_t|| over its largest value, a row for each data set and a column for each case; as printed beside ours."""
    cases = list(dict.fromkeys(case.removesuffix(PRINTED) for panel in panels for case in panel.runs))
    figure = Figure(figsize=(PAGE, 0.7 + 1.6 * len(panels)), layout="constrained")
    grid = figure.subplots(len(panels), len(cases), squeeze=False, sharey=True)
    shown = {}
    for row, panel in zip(grid, panels, strict=True):
        for axes, case in zip(row, cases, strict=True):
            for name, colour, dashes in ((case, COLOURS[0], "-"), (f"{case}{PRINTED}", COLOURS[1], "--")):
                rounds, values = _averaged(panel.runs.get(name, []), _norm)
                if len(values):
                    values = values / np.nanmax(values)
                    axes.plot(rounds, values, color=colour, linewidth=0.5, alpha=0.3)
                    label = "as printed" if name != case else "|f|^gamma over its mean"
                    (shown[label],) = axes.plot(
                        rounds, smooth(values), color=colour, linestyle=dashes, linewidth=1.4, label=label
                    )
            axes.set_title(f"{panel.title}: {case}", fontsize=7)
            axes.set_ylim(0, 1.05)
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        row[0].set_ylabel(r"$\|d_t\|$ / max")
    for axes in grid[-1]:
        axes.set_xlabel("round")
    if len(shown) > 1:
        figure.legend(list(shown.values()), list(shown), loc="outside lower center", ncols=2, handlelength=3.2)
    return figure


AT_LEAST = 10  # values a moving mean is taken over, where a curve has twice as many


def by_round(panels: Sequence[Curves]) -> Figure:
    """Moving means of the means over seeds, shaded from the lowest seed's to the highest's."""
    drawn = [
        {method: [(np.array(at, float), np.array(values, float)) for at, values in seeds]
         for method, seeds in panel.seeds.items()}
        for panel in panels
    ]  # fmt: skip
    named = {method: method for panel in panels for method in panel.seeds}
    return _drawn([panel.title for panel in panels], [panel.label for panel in panels], drawn, named,
                  smoothed=True, shaded=True)  # fmt: skip


def _lines(panels: Sequence[Panel], read: Read | Sequence[Read], label: str, *, smoothed: bool) -> Figure:
    """`read` is what each panel shows, or one thing that all show."""
    reads = [read] * len(panels) if callable(read) else read
    drawn = [
        {method: [one(directory) for directory in directories] for method, directories in panel.runs.items()}
        for panel, one in zip(panels, reads, strict=True)
    ]
    named = {method: _named(method, panels) for panel in panels for method in panel.runs}
    return _drawn([panel.title for panel in panels], [label] * len(panels), drawn, named, smoothed=smoothed)


def _drawn(
    titles: Sequence[str],
    labels: Sequence[str],
    panels: Sequence[dict[str, list[Series]]],
    named: dict[str, str],
    *,
    smoothed: bool,
    shaded: bool = False,
) -> Figure:
    """A panel beside the other, and one legend: each method's mean over its seeds, under the name it is told by."""
    figure = Figure(figsize=(PAGE, 3.0), layout="constrained")
    looks, shown = look(list(named)), {}
    for axes, title, label, panel in zip(_axes(figure, len(panels)), titles, labels, panels, strict=True):
        for place, method in enumerate(named):
            rounds, rows = _common(panel.get(method, []))
            if not len(rounds):
                continue
            if smoothed:
                rows = np.array([smooth(row, min(0.5, max(0.05, AT_LEAST / len(row)))) for row in rows])
            if shaded and len(rows) > 1:
                shade = {"color": looks[method]["color"], "alpha": 0.13, "linewidth": 0}
                axes.fill_between(rounds, rows.min(axis=0), rows.max(axis=0), **shade)
            every = spaced(len(rounds), place)
            (shown[method],) = axes.plot(rounds, np.mean(rows, axis=0), markevery=every, **looks[method])
        axes.set_title(title)
        axes.set_xlabel("round")
        axes.set_ylabel(label)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    if not shown:
        raise AdafedError("there is nothing to draw: no run has a round yet")
    figure.legend(
        [shown[method] for method in named if method in shown],
        [told for method, told in named.items() if method in shown],
        loc="outside lower center",
        ncols=4,
        handlelength=3.2,
    )
    return figure


def _named(method: str, panels: Sequence[Panel]) -> str:
    """A method that serves every client its own model says so: it is no rival of the others."""
    directories = [directory for panel in panels for directory in panel.runs.get(method, [])]
    personal = any(load_kept(directory).personalised for directory in directories)
    return f"{method} (own models)" if personal else method


def _axes(figure: Figure, count: int) -> list[Axes]:
    return list(figure.subplots(1, max(count, 1), squeeze=False)[0])


def _averaged(directories: Sequence[Path], read: Read) -> Series:
    """The rounds that all seeds have, and the mean over seeds in each."""
    rounds, rows = _common([read(directory) for directory in directories])
    return rounds, np.mean(rows, axis=0) if len(rows) else rounds


def _common(seeds: Sequence[Series]) -> tuple[Vector, Vector]:
    """The rounds that all seeds have, and a row of values for each seed that has any."""
    found = [(rounds, values) for rounds, values in seeds if len(rounds)]
    if not found:
        return np.empty(0), np.empty((0, 0))
    common = found[0][0]
    for rounds, _ in found[1:]:
        common = np.intersect1d(common, rounds)
    return common, np.array([values[np.isin(rounds, common)] for rounds, values in found])


def _rho(directory: Path) -> tuple[Vector, Vector]:
    return _series(directory, lambda record: None if record.rho is None else 100.0 * record.rho)


def _norm(directory: Path) -> tuple[Vector, Vector]:
    return _series(directory, lambda record: record.norm)


def _accuracy(directory: Path) -> tuple[Vector, Vector]:
    def mean(record: RoundRecord) -> float | None:
        evaluation = record.evaluation()
        return None if evaluation is None else 100.0 * evaluation.fairness.mean

    return _series(directory, mean, evaluated=True)


def _worst(directory: Path) -> tuple[Vector, Vector]:
    def worst(record: RoundRecord) -> float | None:
        evaluation = record.evaluation()
        return None if evaluation is None else 100.0 * evaluation.fairness.worst_5

    return _series(directory, worst, evaluated=True)


def _series(
    directory: Path, value: Callable[[RoundRecord], float | None], *, evaluated: bool = False
) -> tuple[Vector, Vector]:
    with _store(directory) as store:
        found = [(record.round, value(record)) for record in store.records(evaluated=evaluated)]
    known = [(t, v) for t, v in found if v is not None]
    return np.array([t for t, _ in known], dtype=np.float64), np.array([v for _, v in known], dtype=np.float64)


def _extreme_clients(directory: Path) -> dict[str, tuple[Vector, Vector]]:
    """Among those first seen in the first tenth of the rounds, so that their first losses compare."""
    curves: dict[str, list[tuple[int, float]]] = {}
    with _store(directory) as store:
        last = store.last_round()
        for t in range(1, last + 1):
            for one in store.participants(t):
                if one.before is not None:
                    curves.setdefault(one.client, []).append((t, one.before))
    early = {client: curve for client, curve in curves.items() if curve[0][0] <= max(1, last // 10) and len(curve) > 1}
    if len(early) < 2:
        raise AdafedError(f"{directory} has too few rounds for a client with a high and one with a low loss")
    ordered = sorted(early, key=lambda client: (early[client][0][1], client))
    return {
        f"{word} first loss (client {client})": (
            np.array([t for t, _ in early[client]], dtype=np.float64),
            np.array([v for _, v in early[client]], dtype=np.float64),
        )
        for word, client in (("highest", ordered[-1]), ("lowest", ordered[0]))
    }


@contextmanager
def _store(directory: Path) -> Iterator[Store]:
    store = Store(directory / "rounds.sqlite", read_only=True)
    try:
        yield store
    finally:
        store.close()
