"""Draws the README's picture from the demo's runs: the accuracy of every client, from the worst served on.

    python scripts/picture.py            # trains what the demo trains (a minute), writes docs/figures/clients.svg

Accuracies are averaged over the evaluations of the last tenth of the rounds and over the seeds, rank by rank, so that
the two lowest dots are the worst 10 % of the demo's table.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from adafed.config.experiments import packaged
from adafed.config.studies import load_study
from adafed.report.figures.style import publication
from adafed.runs.store import Store
from adafed.runs.summary import LATE
from adafed.studies.compare import Run, planned, run_all

METHODS = {"FedAvg": ("#D55E00", "s"), "AdaFed, memory": ("#0072B2", "o")}
PICTURE = Path(__file__).resolve().parent.parent / "docs" / "figures" / "clients.svg"


def sorted_accuracies(run: Run) -> np.ndarray:
    """Of one run, lowest first, in percent; the mean over its last evaluations."""
    store = Store(run.directory / "rounds.sqlite", read_only=True)
    try:
        late = [one for one in store.records(evaluated=True) if one.round > (1 - LATE) * run.config.rounds]
    finally:
        store.close()
    found = [one.evaluation() for one in late]
    return np.mean([np.sort(100 * one.evaluated().accuracies) for one in found if one is not None], axis=0)


def drawn(curves: dict[str, np.ndarray], seeds: int) -> Figure:
    figure = Figure(figsize=(7.2, 3.1), layout="constrained")
    axes = figure.subplots()
    places = np.arange(1, len(next(iter(curves.values()))) + 1)
    low, high = curves.values()
    axes.vlines(places, low, high, color="0.8", linewidth=3, zorder=1)
    for (method, values), (colour, marker) in zip(curves.items(), METHODS.values(), strict=True):
        label = "AdaFed with a memory" if method != "FedAvg" else method
        told = f"{label}: mean {values.mean():.1f} %, worst tenth {values[: len(values) // 10].mean():.1f} %"
        axes.plot(places, values, color=colour, marker=marker, markersize=5, linestyle="", label=told, zorder=2)
    axes.set_xticks(places)
    axes.set_xlabel(f"the 20 clients, from the worst served to the best (mean of {seeds} seeds)")
    axes.set_ylabel("test accuracy, %")
    axes.legend(loc="lower right", fontsize=8.5)
    axes.grid(visible=False, axis="x")
    return figure


def main() -> None:
    study = load_study(packaged("demo"))
    study = study.with_methods({method: study.methods[method] for method in METHODS})
    with tempfile.TemporaryDirectory(prefix="adafed-picture-") as folder:
        runs = planned(study, study.seeds, ["run.workers=0"], Path(folder))
        run_all(runs, lambda run, round_, record: None)
        curves = {
            method: np.mean([sorted_accuracies(run) for run in runs if run.method == method], axis=0)
            for method in METHODS
        }
    with publication():
        drawn(curves, len(study.seeds)).savefig(PICTURE, format="svg", metadata={"Date": None}, facecolor="white")
    for method, values in curves.items():
        print(f"{method}: mean {values.mean():.1f}, worst tenth {values[: len(values) // 10].mean():.1f}")
    print(f"wrote {PICTURE}")


if __name__ == "__main__":
    main()
