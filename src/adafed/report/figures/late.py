"""A client that joins late: its test loss beside the others', before and after it takes part."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from adafed.config.loading import load_kept
from adafed.errors import AdafedError
from adafed.report.figures import Panel
from adafed.report.figures.style import COLOURS, PAGE, Vector, spaced
from adafed.runs.store import Store


def draw(panels: Sequence[Panel]) -> Figure:
    (panel,) = panels
    figure = Figure(figsize=(PAGE, 2.4), layout="constrained")
    grid = figure.subplots(1, len(panel.runs), squeeze=False, sharey=True)[0]
    for axes, (method, directories) in zip(grid, panel.runs.items(), strict=True):
        client, since = _newcomer(directories[0])
        rounds, others, own = _losses(directories, client)
        band = {"color": "0.85", "linewidth": 0, "label": "the others, best to worst"}
        axes.fill_between(rounds, others.min(axis=1), others.max(axis=1), **band)
        every = spaced(len(rounds), 0)
        axes.plot(rounds, others.mean(axis=1), "--", color=COLOURS[2], marker="s", markevery=every, label="their mean")
        every = spaced(len(rounds), 4)
        axes.plot(rounds, own, "-", color=COLOURS[0], marker="o", markevery=every, label="the newcomer")
        axes.axvline(since, color=COLOURS[1], linestyle=":", linewidth=1.0)
        axes.annotate("joins", (since, 0.97), xycoords=("data", "axes fraction"), xytext=(3, 0), va="top",
                      textcoords="offset points", color=COLOURS[1], fontsize=7)  # fmt: skip
        axes.set_title(method)
        axes.set_xlabel("round")
    grid[0].set_ylabel("test loss")
    grid[0].set_ylim(bottom=0)
    handles, labels = grid[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3)
    return figure


def _newcomer(directory: Path) -> tuple[str, int]:
    join = load_kept(directory).cohort.join
    if len(join) != 1:
        raise AdafedError(f"{directory}: cohort.join names {len(join)} clients; this figure is about one")
    return next(iter(join.items()))


def _losses(directories: Sequence[Path], client: str) -> tuple[Vector, Vector, Vector]:
    """Rounds, the others' losses (rounds x clients) and the newcomer's, each a mean over seeds."""
    found = []
    rounds: list[int] = []
    ids: list[str] = []
    for directory in directories:
        store = Store(directory / "rounds.sqlite", read_only=True)
        try:
            records = [record for record in store.records(evaluated=True) if record.evaluation() is not None]
        finally:
            store.close()
        rounds = [record.round for record in records]
        table = []
        for record in records:
            evaluation = record.evaluation()
            assert evaluation is not None
            ids = [one for one, _ in evaluation.scores]
            table.append([score.loss if score.loss is not None else np.nan for _, score in evaluation.scores])
        found.append(table)
    values = np.mean(np.array(found, dtype=np.float64), axis=0)
    mine = ids.index(client)
    return np.array(rounds, dtype=np.float64), np.delete(values, mine, axis=1), values[:, mine]
