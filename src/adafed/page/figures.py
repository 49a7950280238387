"""The page's pictures for print, as PNG, SVG and PDF. Needs the extra `figures` (matplotlib)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from adafed.errors import AdafedError
from adafed.page.model import Report
from adafed.page.payload import payload, sorted_accuracies

Axes = Any  # matplotlib's, which may not be installed
Drawing = Callable[[Axes, Report, Sequence[Mapping[str, Any]], Mapping[str, Any]], bool]


def write_figures(report: Report, folder: Path) -> list[Path]:
    """One figure for each picture of the page that has something to show."""
    try:
        from matplotlib.figure import Figure

        from adafed.report.figures import style
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith("matplotlib"):
            raise
        raise AdafedError("--figures needs matplotlib: pip install 'adafed[figures]'") from None
    methods = payload(report)["methods"]
    looks = style.look([method["name"] for method in methods])
    paths: list[Path] = []
    with style.publication():
        for name, draw in DRAWINGS.items():
            figure = Figure(figsize=(style.PAGE, 3.2), layout="constrained")
            axes = figure.subplots()
            if not draw(axes, report, methods, looks):
                continue
            handles, labels = axes.get_legend_handles_labels()
            if len(labels) > 1:
                figure.legend(handles, labels, loc="outside lower center", ncols=4, handlelength=3.2)
            paths += style.save(figure, folder / name)
    if not paths:
        raise AdafedError("there is nothing to draw: no run has an evaluation yet")
    return paths


def _line(axes: Axes, name: str, series: Mapping[str, Any], look: Mapping[str, Any]) -> None:
    """A method's line, and the band over its seeds."""
    x, y = (np.array([np.nan if one is None else one for one in series[key]], dtype=float) for key in ("x", "y"))
    if "low" in series:
        low, high = (np.array(series[key], dtype=float) for key in ("low", "high"))
        axes.fill_between(x, low, high, color=look["color"], alpha=0.12, linewidth=0)
    axes.plot(x, y, label=name, markevery=max(1, len(x) // 7), **look)


def _sorted(axes: Axes, report: Report, _: Sequence[Mapping[str, Any]], looks: Mapping[str, Any]) -> bool:
    drawn, lowest = False, 100.0
    for method, runs in report.methods.items():
        whole = [run for run in runs if run.clients is not None]
        if not whole:
            continue
        shares, lines = sorted_accuracies(whole, report.tail)
        if not lines.size:
            continue
        band = {"low": lines.min(axis=0), "high": lines.max(axis=0)} if len(lines) > 1 else {}
        _line(axes, method, {"x": shares, "y": lines.mean(axis=0), **band}, looks[method])
        drawn, lowest = True, min(lowest, float(lines.min()))
    axes.axvspan(0, 10, color="0.9", zorder=0)
    floor = max(0, 10 * int((lowest - 1) // 10))  # as on the page
    axes.set(xlim=(0, 100), ylim=(floor, 101), xlabel="clients from the worst served on, %", ylabel="test accuracy, %")
    return drawn


def _curves(key: str, label: str) -> Drawing:
    def draw(axes: Axes, _: Report, methods: Sequence[Mapping[str, Any]], looks: Mapping[str, Any]) -> bool:
        known = [method for method in methods if method["curves"].get(key)]
        for method in known:
            _line(axes, method["name"], method["curves"][key], looks[method["name"]])
        axes.set(xlabel="round", ylabel=label)
        return bool(known)

    return draw


def _norm(axes: Axes, report: Report, methods: Sequence[Mapping[str, Any]], looks: Mapping[str, Any]) -> bool:
    found = _curves("norm", r"$\|d_t\|$ (dotted: mean update)")(axes, report, methods, looks)
    for method in methods:
        if series := method["curves"].get("mean_norm"):
            axes.plot(series["x"], series["y"], linestyle=":", linewidth=0.9, color=looks[method["name"]]["color"])
    return found


def _coefficients(axes: Axes, report: Report, methods: Sequence[Mapping[str, Any]], looks: Mapping[str, Any]) -> bool:
    """Lowest and highest of each round, a band a method; below zero an update is subtracted."""
    known = [method for method in methods if method["coefficients"]]
    for method in known:
        at, (low, _, median, _, high) = method["coefficients"]["x"], method["coefficients"]["quantiles"]
        _line(axes, method["name"], {"x": at, "y": median, "low": low, "high": high}, looks[method["name"]])
    axes.axhline(0.0, color="0.2", linewidth=0.8)
    axes.set(xlabel="round", ylabel="coefficient: median, lowest to highest")
    return bool(known)


def _histogram(axes: Axes, report: Report, methods: Sequence[Mapping[str, Any]], looks: Mapping[str, Any]) -> bool:
    bins = np.array(payload(report)["bins"])
    known = [method for method in methods if method["histogram"]]
    for method in known:
        look = {key: value for key, value in looks[method["name"]].items() if key != "marker"}
        axes.stairs(method["histogram"], bins, label=method["name"], **look)
    axes.set(xlabel="test accuracy, %", ylabel="clients, %", xlim=(0, 100))
    return bool(known)


def _cumulative(axes: Axes, report: Report, methods: Sequence[Mapping[str, Any]], looks: Mapping[str, Any]) -> bool:
    known = [method for method in methods if method["sorted"]]
    for method in known:
        look = {key: value for key, value in looks[method["name"]].items() if key != "marker"}
        x = method["sorted"]["x"]  # clients in the middle of their share each; with it they are so many
        shares = [one + 50.0 / len(x) for one in x]
        axes.step(method["sorted"]["y"], shares, where="post", label=method["name"], **look)
    axes.set(xlabel="test accuracy, %", ylabel="clients with at most that, %", xlim=(0, 101), ylim=(0, 101))
    return bool(known)


def _pareto(axes: Axes, report: Report, methods: Sequence[Mapping[str, Any]], looks: Mapping[str, Any]) -> bool:
    known = [method for method in methods if method["point"]["mean"] and method["point"]["worst_10"]]
    for method in known:
        (x, dx), (y, dy), look = method["point"]["mean"], method["point"]["worst_10"], looks[method["name"]]
        axes.errorbar(x, y, xerr=dx or None, yerr=dy or None, color=look["color"], marker=look["marker"],
                      linestyle="none", elinewidth=0.7, capsize=2, label=method["name"])  # fmt: skip
    points = [(one["point"]["mean"][0], one["point"]["worst_10"][0]) for one in known if not one["personalised"]]
    front = sorted(p for p in points if not any(o != p and o[0] >= p[0] and o[1] >= p[1] for o in points))
    axes.plot(*zip(*front, strict=True) if front else ((), ()), color="0.5", linestyle=":", linewidth=1.0, zorder=1)
    axes.set(xlabel="mean accuracy, %", ylabel="worst 10 %, accuracy in %")
    return len(known) > 1


DRAWINGS: dict[str, Drawing] = {
    "clients-sorted": _sorted,
    "mean": _curves("mean", "mean accuracy, %"),
    "worst": _curves("worst_10", "worst 10 %, accuracy in %"),
    "loss-spread": _curves("loss_std", "standard deviation of losses"),
    "rho": _curves("rho", "loss did not rise, % of the round's clients"),
    "decrease": _curves("mean_decrease", "mean decrease of the loss"),
    "norm": _norm,
    "coefficients": _coefficients,
    "histogram": _histogram,
    "cumulative": _cumulative,
    "pareto": _pareto,
}
