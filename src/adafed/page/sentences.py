"""What the numbers say, in words for somebody who has never heard of federated learning.

A sentence says that something rose or fell only where the paired interval over the seeds leaves out zero. Where the
method is chosen among several because it came out best, the interval is made wider for the choice (Bonferroni).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from adafed.page.model import Clients, Report, Run, federations
from adafed.studies.results import Difference, difference

LEVEL = 0.95
ROUNDING = 1e-9  # a difference below this is none
NAMED = 3  # methods or clients, where there are more
SHORT = 24  # letters of what is named in passing


@dataclass(frozen=True)
class Change:
    """One measure of a method against another's, over the seeds that both have. In percent and points."""

    before: float
    after: float
    found: Difference

    @property
    def shown(self) -> int:
        """1 or -1 where the interval leaves out zero, 0 where it does not or there is none."""
        mean, half = self.found.mean, self.found.half
        if half is None or not math.isfinite(half) or abs(mean) <= half or abs(mean) < ROUNDING:
            return 0
        return 1 if mean > 0 else -1

    @property
    def interval(self) -> str:
        assert self.found.half is not None
        low, high = self.found.mean - self.found.half, self.found.mean + self.found.half
        return f"{signed(low)} to {signed(high)}"


def change(report: Report, method: str, other: str, key: str, among: int = 1) -> Change | None:
    """`among` is how many methods the one was chosen from. None where no pair of runs has the measure."""
    both = [
        (a.measures(report.tail).get(key), b.measures(report.tail).get(key)) for a, b in report.pairs(method, other)
    ]
    known = [(a, b) for a, b in both if a is not None and b is not None]
    if not known:
        return None
    found = difference([a - b for a, b in known], 1 - (1 - LEVEL) / max(among, 1))
    return Change(_mean([b for _, b in known]), _mean([a for a, _ in known]), found)


def sentences(report: Report) -> list[str]:
    """Two to six, the most important first; one where there is nothing to tell yet."""
    if report.reference is None:
        return ["No round has been evaluated yet, so there is nothing to compare."]
    other, rivals = report.reference, _rivals(report)
    found = [apart(report, other), worst_off(report, other)]
    if rivals:
        found += [compared(report, rivals[0], other, len(rivals)), others(report, rivals[1:], other, len(rivals))]
    found += [promised(report, [*rivals[:1], other]), by_chance(report, rivals[0] if rivals else other)]
    return [one for one in found if one]


def apart(report: Report, other: str) -> str | None:
    """Which numbers do not compare: before all others, as the table shows them one below the other."""
    strange = [method for method in report.methods if method != other and not report.same_data(method, other)]
    if len(report.data) > 1:
        told = f"The runs are on different data ({', '.join(report.data)}): their numbers do not compare."
    elif strange:
        told = "Not all methods were run with the same samples at the same clients: their numbers do not compare."
    else:
        return None
    names = [called(method) for method in strange]
    many = ", ".join(names[:NAMED]) + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")
    return f"{told} On other data than {called(other)}, and not counted here: {many}." if names else told


def worst_off(report: Report, method: str) -> str | None:
    """Who is treated worst, and how badly."""
    worst, mean = report.values(method, "worst_10"), report.values(method, "mean")
    if not worst or not mean:
        return None
    runs = report.methods[method]
    average = f", on average over {len(worst)} seeds" if len(worst) > 1 else ""
    count = _how_many(runs)
    if count is None:
        who, get = "the worst-served tenth of clients", "get {} of their"
    elif count <= 10:  # a tenth of them is one
        who, get = f"the worst-served client (of {count})" if count > 1 else "the only client", "gets {} of its"
    else:
        who, get = f"the worst-served tenth of clients ({-(-count // 10):,} of {count:,})", "get {} of their"
    return (
        f"Under {called(method)} {who} {get.format(percent(_mean(worst)))} test samples right; over all clients it is "
        f"{percent(_mean(mean))}{average}.{_by_name(report, runs)}"
    )


def _by_name(report: Report, runs: Sequence[Run]) -> str:
    """The worst-served clients, where the seeds have the same ones: a seed's own would stand beside means over all."""
    same = next(iter(federations(runs).values()), [])
    if len(same) < len(runs) or same[0].clients is None:
        return ""
    clients = same[0].clients
    if any(run.clients is None or run.clients.ids != clients.ids for run in same):
        return ""
    accuracies = np.mean([run.client_accuracies(report.tail) for run in same], axis=0)
    order = [k for k in np.argsort(accuracies, kind="stable").tolist() if np.isfinite(accuracies[k])]
    if len(order) < 2 or any(len(clients.ids[k]) > SHORT for k in order[:NAMED]):
        return ""
    told = [
        f"{_client(clients.ids[k])}: {percent(float(accuracies[k]))}{_holds(clients, k)}"
        for k in order[: min(NAMED, len(order) - 1)]
    ]
    return f" Served worst: {'; '.join(told)}."


def _client(name: str) -> str:
    return called(name) if name.lower().startswith("client") else f"client {called(name)}"


def _holds(clients: Clients, k: int) -> str:
    """What may explain it: that a client has one or two labels alone."""
    held = [] if clients.labels is None else [label for label, count in clients.labels.get(k, {}).items() if count]
    told = " and ".join(map(called, held))
    return f" (holds only {told})" if 1 <= len(held) <= 2 and len(told) <= SHORT else ""


def compared(report: Report, method: str, other: str, among: int) -> str:
    """What a method does for the worst tenth, and what it costs."""
    worst = change(report, method, other, "worst_10", among)
    mean = change(report, method, other, "mean", among)
    method, other = called(method), called(other)
    best = f"Of {among} methods set against {other}, {method} has the best worst tenth. " if among > 1 else ""
    if worst is None or mean is None:
        return f"{best}{method} and {other} have no seed in common, so their difference cannot be told from luck."
    pairs = worst.found.pairs
    if pairs < 2:
        return (
            f"{best}In one pair of runs the worst tenth is at {percent(worst.after)} under {method} and at "
            f"{percent(worst.before)} under {other}, the mean at {percent(mean.after)} and {percent(mean.before)}; "
            "one seed cannot tell a difference from luck."
        )
    return best + _weighed(method, other, worst, mean, "" if among == 1 else f", allowing for the choice among {among}")


def others(report: Report, methods: Sequence[str], other: str, among: int) -> str | None:
    """What the methods that are not the best do beyond chance."""
    told = []
    for method in methods:
        found = [
            f"{'gains' if moved.shown > 0 else 'costs'} {points(moved.found.mean)} {where}"
            for key, where in (("worst_10", "of the worst tenth"), ("mean", "on average"))
            if (moved := change(report, method, other, key, among)) is not None
            and moved.found.pairs > 1
            and moved.shown
        ]
        told += [f"{called(method)} {' and '.join(found)}"] if found else []
    return f"Of the others, beyond chance against {called(other)}: {'; '.join(told)}." if told else None


def _weighed(method: str, other: str, worst: Change, mean: Change, allowing: str) -> str:
    """Only what is beyond chance is said to rise or fall; the rest is set side by side."""
    over = f"over {worst.found.pairs} seeds"
    both = f"(95\u00a0% intervals {worst.interval} and {mean.interval} points{allowing})"
    moved = f"{'lifts' if worst.shown > 0 else 'lowers'} the worst tenth of clients from {percent(worst.before)} to"
    average = f"{'gains' if mean.shown > 0 else 'costs'} {points(mean.found.mean)} on average"
    if worst.shown and mean.shown:
        return f"{method} {moved} {percent(worst.after)} and {average}; {over} both are beyond chance {both}."
    if worst.shown:
        return (
            f"{method} {moved} {percent(worst.after)}, which {over} is beyond chance; the mean is at "
            f"{percent(mean.after)} against {percent(mean.before)}, which could be chance {both}."
        )
    beside = f"The worst tenth is at {percent(worst.after)} under {method} and at {percent(worst.before)} under {other}"
    if mean.shown:
        return f"{beside}, which {over} could be chance; {method} {average}, which is beyond chance {both}."
    return (
        f"{beside}, the mean at {percent(mean.after)} and {percent(mean.before)}: {over} both differences could be "
        f"chance {both}."
    )


def promised(report: Report, methods: Sequence[str]) -> str | None:
    """rho_t: a fair step is one that hurts nobody."""
    shares = {method: improved_share(report.methods[method]) for method in methods}
    known = [f"{percent(share)} under {called(method)}" for method, share in shares.items() if share is not None]
    if not known:
        return None
    told = " and ".join(known)
    return f"A fair step hurts nobody: over all rounds, the share of clients whose loss did not rise was {told}."


def by_chance(report: Report, method: str) -> str | None:
    """What part of the spread says nothing about the clients."""
    spread, floor = report.values(method, "std"), report.values(method, "floor")
    if not spread or not floor:
        return None
    return (
        f"Accuracies under {called(method)} spread by {points(_mean(spread))} (σ_a); with test sets this small, "
        f"equally served clients would spread by {points(_mean(floor))}."
    )


def improved_share(runs: Sequence[Run]) -> float | None:
    """The mean of rho_t over all rounds, or over the evaluated ones where only they are known; in percent."""
    found = []
    for run in runs:
        if run.rounds is not None:
            known = run.rounds.series["rho"][np.isfinite(run.rounds.series["rho"])]
            found += [100.0 * float(known.mean())] if len(known) else []
        else:
            values = [one for one in run.evaluations.get("rho", ()) if one is not None]
            found += [_mean(values)] if values else []
    return _mean(found) if found else None


def _rivals(report: Report) -> list[str]:
    """The other methods on the same data that share one model among the clients, the best worst tenth first."""
    shared = [
        method
        for method, runs in report.methods.items()
        if method != report.reference
        and not runs[0].personalised
        and report.values(method, "worst_10")
        and (report.reference is None or report.same_data(method, report.reference))
    ]
    return sorted(shared, key=lambda method: -_mean(report.values(method, "worst_10")))


def _how_many(runs: Sequence[Run]) -> int | None:
    """Clients with an accuracy, where that is one number."""
    counts = {int(np.isfinite(run.client_accuracies(False)).sum()) for run in runs if run.clients is not None}
    return counts.pop() if len(counts) == 1 else None


def called(method: str) -> str:
    """A name that could be taken for more of the sentence stands in quotation marks."""
    return f"“{method}”" if "," in method or ";" in method else method


def percent(value: float) -> str:
    return f"{value:.1f}\u00a0%"


def points(value: float) -> str:
    """Without its sign."""
    told = f"{abs(value):.1f}"
    return "less than 0.1 points" if told == "0.0" else f"{told} point{'' if told == '1.0' else 's'}"


def signed(value: float) -> str:
    told = f"{abs(value):.1f}"
    return told if told == "0.0" else f"{'+' if value > 0 else '−'}{told}"


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
