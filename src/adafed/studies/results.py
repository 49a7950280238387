"""What kept results say: each method's numbers, differences paired over the seeds, how many rounds each needed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from adafed.errors import AdafedError, quoted
from adafed.metrics import own_label
from adafed.report.figures import Curves
from adafed.report.tables import HALF, Cell, Column, Row, Table, cells, column
from adafed.rounds.cohort import OTHER_COHORTS
from adafed.runs.summary import known_mean
from adafed.studies.kept import SMOOTHED, Kept, direction


def scores(kept: Kept, columns: Sequence[str], *, final: bool = False) -> Table:
    """Each method's numbers: mean and standard deviation over its seeds."""
    rows = []
    for method, runs in kept.methods().items():
        numbers = [[(run.final if final else run.tail).get(key) for key in columns] for run in runs.values()]
        label = method if len(runs) == _most_seeds(kept) else f"{method} ({_seeds(len(runs))})"
        rows.append(Row(label, cells(numbers), next(iter(runs.values())).personalised))
    what = "the final model" if final else "means over the evaluations of the last tenth of the rounds"
    notes = (f"{what}; {_seeds(_most_seeds(kept))}", *(f"{key}: {value}" for key, value in kept.told.items()))
    return Table(kept.title, tuple(kept_column(key) for key in columns), tuple(rows), notes)


@dataclass(frozen=True)
class Difference:
    """The mean of paired differences and half the width of its interval (Student's t); None for one pair."""

    mean: float
    half: float | None
    pairs: int


def difference(values: Sequence[float], level: float = 0.95) -> Difference:
    mean = math.fsum(values) / len(values)
    if len(values) < 2:
        return Difference(mean, None, len(values))
    from scipy.special import stdtrit

    variance = math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)
    half = float(stdtrit(len(values) - 1, 0.5 + level / 2)) * math.sqrt(variance / len(values))
    return Difference(mean, half, len(values))


def paired(kept: Kept, against: str, columns: Sequence[str], *, final: bool = False) -> Table:
    """Every method minus `against` at the same seeds: the split and the first model are the same there, and the cohorts
    but where clients are drawn by their losses."""
    methods = kept.methods()
    if against not in methods:
        raise AdafedError(f"--against is {against!r}; there are {quoted(methods)}")
    rows = []
    for method, runs in methods.items():
        if method == against:
            continue
        both = sorted(runs.keys() & methods[against].keys())
        line = []
        for key in columns:
            pairs = [((a.final if final else a.tail).get(key), (b.final if final else b.tail).get(key))
                     for a, b in ((runs[seed], methods[against][seed]) for seed in both)]  # fmt: skip
            known = [a - b for a, b in pairs if a is not None and b is not None]
            line.append(interval(difference(known), max(2, kept_column(key).digits)) if known else Cell(()))
        rows.append(Row(method, tuple(line), next(iter(runs.values())).personalised))
    picked = tuple(Column(one.label, 0, digits=one.digits, spread=HALF) for one in map(kept_column, columns))
    notes = ["paired over the seeds, with half the width of the 95 % interval; one seed has none"]
    if any("sampling" in run.settings for run in kept.runs):
        notes.append(OTHER_COHORTS)
    return Table(f"{kept.title}: difference to {against}", picked, tuple(rows), tuple(notes))


def interval(found: Difference, digits: int, mark: str = "") -> Cell:
    told = "" if found.half is None else f" ±{found.half:.{digits}f}"
    return Cell((found.mean,), told + mark, half=found.half, seeds=found.pairs)


def rounds_to(kept: Kept, levels: Mapping[str, float]) -> Table:
    """How many rounds each method took to reach each level; a seed that never did is not counted, and told."""
    rows = []
    for method, runs in kept.methods().items():
        line = []
        for key, level in levels.items():
            reached = [run.reached(key, level) for run in runs.values()]
            there = tuple(float(round_) for round_ in reached if round_ is not None)
            missed = len(reached) - len(there)
            told = f" ({missed} of {len(reached)} never)" if missed else ""
            line.append(Cell(there, told, 0, competes=not missed, missed=missed))
        rows.append(Row(method, tuple(line), next(iter(runs.values())).personalised))
    signs = {1: "≥", -1: "≤"}
    picked = tuple(
        Column(f"{kept_column(key).label} {signs[direction(key)]} {level:g}", -1, missed="never")
        for key, level in levels.items()
    )
    note = f"the first round whose evaluation, averaged with the {SMOOTHED - 1} before it, is there"
    return Table(f"{kept.title}: rounds to reach", picked, tuple(rows), (note,))


def curves(kept: Kept, columns: Sequence[str]) -> list[Curves]:
    """Each measure over the rounds, every seed of every method: what `save_curves` draws."""
    panels = []
    for key in columns:
        seeds = {
            method: [_known(run.at, run.evaluations.get(key, ())) for run in runs.values()]
            for method, runs in kept.methods().items()
        }
        panels.append(Curves(kept.title, kept_column(key).label, seeds))
    return panels


def _known(at: Sequence[int], values: Sequence[float | None]) -> tuple[list[float], list[float]]:
    """The rounds that have a value, and those."""
    there = [(float(t), value) for t, value in zip(at, values, strict=False) if value is not None]
    return [t for t, _ in there], [value for _, value in there]


def usual_levels(kept: Kept, against: str) -> dict[str, float]:
    """Where `against` ends, a point below: what a slower method must reach too."""
    runs = kept.methods().get(against, {}).values()
    found = {key: known_mean([run.tail.get(key) for run in runs]) for key in ("mean", "worst_10")}
    return {key: round(value - 1.0, 1) for key, value in found.items() if value is not None}


def kept_column(key: str) -> Column:
    """A kept file is read without the user's module too: numbers need no formula."""
    try:
        return column(key)
    except AdafedError:
        return Column(own_label(key) or key)


def _most_seeds(kept: Kept) -> int:
    return max((len(runs) for runs in kept.methods().values()), default=0)


def _seeds(count: int) -> str:
    return f"{count} seed" if count == 1 else f"{count} seeds"
