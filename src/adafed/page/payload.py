"""What the page's pictures and its table of clients are drawn from: plain values for JSON, long lists as base64.

Numbers are rounded to what can be seen, and long curves thinned; `thinned` says in words what was.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from adafed.page.model import Report, Run, Vector, federations

RANKS = 400  # clients of a sorted curve that are drawn one by one
POINTS = 600  # rounds of a curve
CLIENT_NUMBERS = 1_000_000  # accuracies of single clients in one page
CLIENT_POINTS = 20  # evaluations of a client that are kept in any case
BINS = np.arange(0.0, 100.1, 5.0)
MISSING = 65535  # accuracies are hundredths of a percent in 16 bits
SMOOTHED = 0.05  # of the rounds: the moving mean of what only takes few values in a round
BY_EVALUATION = ("mean", "worst_10", "best_10", "std", "loss_std")
BY_ROUND = ("rho", "mean_decrease", "norm", "mean_norm")


def payload(report: Report) -> dict[str, Any]:
    return {
        "title": report.title,
        "tail": report.tail,
        "reference": report.reference,
        "methods": [_method(report, name, runs) for name, runs in report.methods.items()],
        "bins": BINS.tolist(),
        "federations": _federations(report),
        "thinned": thinned(report),
    }


def thinned(report: Report) -> list[str]:
    found = []
    most = max((len(run.clients.ids) for run in report.runs if run.clients is not None), default=0)
    if most > RANKS:
        found.append(f"Sorted curves show {RANKS} evenly spaced of {most} clients.")
    kept = client_points(report.runs)
    evaluated = max((len(run.at) for run in report.runs if run.clients is not None), default=0)
    if evaluated > kept:
        found.append(f"Curves of single clients show {kept} of {evaluated} evaluations, the last among them.")
    longest = max((len(run.rounds.at) for run in report.runs if run.rounds is not None), default=0)
    if longest > POINTS:
        found.append(f"Curves by round show means over {-(-longest // POINTS)} neighbouring rounds.")
    return found


def client_points(runs: Sequence[Run]) -> int:
    """How many evaluations a client's curve has room for."""
    clients = sum(len(run.clients.ids) for run in runs if run.clients is not None)
    return max(CLIENT_POINTS, CLIENT_NUMBERS // max(clients, 1))


# Methods: what is averaged over seeds


def _method(report: Report, name: str, runs: Sequence[Run]) -> dict[str, Any]:
    whole = [run for run in runs if run.clients is not None]
    curves = {key: _over_seeds([_evaluated(run, key) for run in runs]) for key in BY_EVALUATION}
    curves |= {key: _over_seeds([_by_round(run, key) for run in runs]) for key in BY_ROUND}
    return {
        "name": name,
        "personalised": runs[0].personalised,
        "seeds": len({run.seed for run in runs}),
        "sorted": _sorted(whole, report.tail) if whole else None,
        "histogram": _histogram(whole, report.tail) if whole else None,
        "curves": curves,
        "coefficients": _coefficients(runs),
        "point": {key: _spread(report.values(name, key)) for key in ("mean", "worst_10")},
    }


def _spread(values: Sequence[float]) -> list[float] | None:
    """Mean and standard deviation over seeds."""
    if not values:
        return None
    return [round(float(np.mean(values)), 3), round(float(np.std(values, ddof=1)), 3) if len(values) > 1 else 0.0]


def sorted_accuracies(runs: Sequence[Run], tail: bool) -> tuple[Vector, Vector]:
    """Shares of the clients in percent, from the worst served on, and a row a run of the accuracies there.

    The mean over evaluations of sorted accuracies, so that their lowest tenth averages to the table's worst 10 %.
    """
    counts = {int(np.isfinite(row).sum()) for run in runs for row in _rows(run, tail)} - {0}
    count = min(max(counts, default=0), RANKS)
    shares = 100.0 * (np.arange(count) + 0.5) / max(count, 1)
    lines = []
    for run in runs:
        curves = []
        for row in _rows(run, tail):
            ordered = np.sort(row[np.isfinite(row)])
            if len(ordered) == count:
                curves.append(ordered)
            elif len(ordered):
                curves.append(np.interp(shares, 100.0 * (np.arange(len(ordered)) + 0.5) / len(ordered), ordered))
        if curves:
            lines.append(np.mean(curves, axis=0))
    return shares, np.array(lines)


def _rows(run: Run, tail: bool) -> Vector:
    assert run.clients is not None
    return np.asarray(run.clients.accuracies[run.chosen(tail)])


def _sorted(runs: Sequence[Run], tail: bool) -> dict[str, Any] | None:
    shares, lines = sorted_accuracies(runs, tail)
    return _banded(shares, lines) if len(lines) else None


def _histogram(runs: Sequence[Run], tail: bool) -> list[float | None] | None:
    """The share of clients in each bin, in percent, over all runs."""
    values = np.concatenate([_rows(run, tail).ravel() for run in runs])
    values = values[np.isfinite(values)]
    if not len(values):
        return None
    return _short(100.0 * np.histogram(np.clip(values, 0, 100), BINS)[0] / len(values))


def _evaluated(run: Run, key: str) -> tuple[Vector, Vector]:
    known = [(at, one) for at, one in zip(run.at, run.evaluations.get(key, ()), strict=False) if one is not None]
    return np.array([at for at, _ in known], dtype=np.float64), np.array([one for _, one in known], dtype=np.float64)


def _by_round(run: Run, key: str) -> tuple[Vector, Vector]:
    if run.rounds is None:
        at, values = _evaluated(run, key)
    else:
        values = run.rounds.series[key] * (100.0 if key == "rho" else 1.0)
        known = np.isfinite(values)
        at, values = run.rounds.at[known].astype(np.float64), values[known]
    return at, _moving_mean(values) if key in ("rho", "mean_decrease") else values


def _moving_mean(values: Vector) -> Vector:
    half = max(int(len(values) * SMOOTHED / 2), 2)
    if len(values) < 4 * half:
        return values
    sums = np.concatenate([[0.0], np.cumsum(values)])
    start = np.maximum(np.arange(len(values)) - half, 0)
    stop = np.minimum(np.arange(len(values)) + half + 1, len(values))
    return np.asarray((sums[stop] - sums[start]) / (stop - start))


def _over_seeds(found: Sequence[tuple[Vector, Vector]]) -> dict[str, Any] | None:
    """The mean over seeds at the rounds that all of them have, and the lowest and highest."""
    found = [(at, values) for at, values in found if len(at)]
    if not found:
        return None
    common = found[0][0]
    for at, _ in found[1:]:
        common = np.intersect1d(common, at)
    if not len(common):
        return None
    lines = np.array([values[np.isin(at, common)] for at, values in found])
    return _banded(*_binned(common, lines))


def _binned(at: Vector, lines: Vector) -> tuple[Vector, Vector]:
    """Means over neighbours where there are more points than a picture can show; the last of them names the mean."""
    width = -(-len(at) // POINTS)
    if width <= 1:
        return at, lines
    starts = np.arange(0, len(at), width)
    counts = np.diff([*starts, len(at)])
    return at[np.minimum(starts + width, len(at)) - 1], np.add.reduceat(lines, starts, axis=1) / counts


def _banded(x: Vector, lines: Vector) -> dict[str, Any]:
    found: dict[str, Any] = {"x": _short(x), "y": _short(lines.mean(axis=0))}
    if len(lines) > 1:
        found |= {"low": _short(lines.min(axis=0)), "high": _short(lines.max(axis=0))}
    return found


def _coefficients(runs: Sequence[Run]) -> dict[str, Any] | None:
    """The quantiles of each round's coefficients: lowest of the lowest, highest of the highest, means of the others."""
    known = [run.rounds for run in runs if run.rounds is not None]
    if not known or not any(np.isfinite(one.coefficients).any() for one in known):
        return None
    common = known[0].at
    for one in known[1:]:
        common = np.intersect1d(common, one.at)
    cut = np.array([one.coefficients[np.isin(one.at, common)] for one in known])
    used = np.isfinite(cut).all(axis=(0, 2))
    if not used.any():
        return None
    at, cut = common[used].astype(np.float64), cut[:, used]
    lines = np.array([cut[:, :, 0].min(0), cut[:, :, 1].mean(0), cut[:, :, 2].mean(0), cut[:, :, 3].mean(0),
                      cut[:, :, 4].max(0)])  # fmt: skip
    negative = [one.series["negative"] for one in known]
    rounds = sum(int((one > 0).sum()) for one in negative)
    width = -(-len(at) // POINTS)
    if width > 1:
        starts = np.arange(0, len(at), width)
        low, high = np.minimum.reduceat(lines[0], starts), np.maximum.reduceat(lines[4], starts)
        at, lines = _binned(at, lines)
        lines[0], lines[4] = low, high
    return {
        "x": _short(at),
        "quantiles": [_short(line) for line in lines],
        "negative": rounds,
        "rounds": sum(len(one.at) for one in known),
    }


# Clients: what is not


def _federations(report: Report) -> list[dict[str, Any]]:
    names = list(report.methods)
    kept = client_points(report.runs)
    found = []
    groups = federations([run for run in report.runs if run.method in report.methods])
    for runs in groups.values():
        first = runs[0].clients
        assert first is not None
        runs = [run for run in runs if run.clients is not None and run.clients.ids == first.ids]
        seeds = sorted({run.seed for run in runs})
        held = next((run.clients.labels for run in runs if run.clients and run.clients.labels is not None), None)
        found.append({
            "label": ("seed " if len(seeds) == 1 else "seeds ") + ", ".join(map(str, seeds)),
            "ids": list(first.ids),
            "test": _packed(first.test_samples, "u4"),
            "train": _packed(first.train_samples, "f4"),
            "labels": None if held is None else [_pairs(held.get(k, {})) for k in range(len(first.ids))],
            "methods": [_of_method(name, names.index(name), runs, report.tail, kept)
                        for name in names if any(run.method == name for run in runs)],
        })  # fmt: skip
    return found


def _pairs(counts: Any) -> list[Any]:
    """Label, count, label, count: the most frequent first."""
    return [one for label, count in sorted(counts.items(), key=lambda pair: -pair[1]) for one in (label, count)]


def _of_method(name: str, index: int, runs: Sequence[Run], tail: bool, kept: int) -> dict[str, Any]:
    own = [run for run in runs if run.method == name]
    clients = [run.clients for run in own if run.clients is not None]
    reasons: dict[str, dict[str, int]] = {}
    for one in clients:
        for client, why in one.reasons.items():
            told = reasons.setdefault(str(client), {})
            for reason, times in why.items():
                told[reason] = told.get(reason, 0) + times
    return {
        "method": index,
        "accuracy": _packed(_known_mean([run.client_accuracies(tail) for run in own]), "f4"),
        "loss": _packed(_known_mean([one.loss for one in clients]), "f4"),
        "coefficient": _packed(_known_mean([one.coefficient for one in clients]), "f4"),
        "drawn": _packed(np.sum([one.drawn for one in clients], axis=0), "u4"),
        "dropped": _packed(np.sum([one.dropped for one in clients], axis=0), "u4"),
        "reasons": reasons,
        "runs": [_curve(run, kept) for run in own],
    }


def _known_mean(values: Sequence[Vector]) -> Vector:
    """Where all are known."""
    return np.asarray(np.mean(values, axis=0))


def _curve(run: Run, kept: int) -> dict[str, Any]:
    assert run.clients is not None
    count = len(run.at)
    chosen = np.unique(np.linspace(0, count - 1, min(count, kept)).round().astype(int))
    values = run.clients.accuracies[chosen]
    whole = np.where(np.isfinite(values), np.rint(100.0 * np.nan_to_num(values)), MISSING)
    return {"seed": run.seed, "at": [run.at[k] for k in chosen], "accuracies": _packed(whole, "u2")}


def _packed(values: npt.NDArray[Any], kind: str) -> str:
    """Little-endian, row by row."""
    return base64.b64encode(np.ascontiguousarray(values, dtype=f"<{kind}").tobytes()).decode()


def _short(values: Vector) -> list[float | None]:
    """Five digits; what is no finite number is None, which JSON knows."""
    return [float(f"{one:.5g}") if np.isfinite(one) else None for one in np.asarray(values, dtype=np.float64).tolist()]
