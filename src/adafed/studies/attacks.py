"""How honest clients fare while others lie: rules x attacks, without guards and with them, over seeds.

Every run has a directory of its own, so an interrupted table goes on where it was. Differences are to the run at the
same seed and under the same guards in which the liars are honest, over the clients that lie in neither.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from adafed.config.merging import merged
from adafed.config.studies import Study
from adafed.engines.station import liars_of
from adafed.errors import AdafedError
from adafed.metrics import formulas
from adafed.report.tables import HALF, STD, Cell, Column, Row, Table
from adafed.runs.summary import LATE, evaluations
from adafed.studies.compare import Run, planned
from adafed.studies.results import difference, interval

NONE = "none"
FLIPPED = {"name": "scale", "factor": -1.0}
ATTACKS: dict[str, list[Any]] = {
    NONE: [],
    "loss x100": [{"name": "loss", "factor": 100.0}],
    "loss x0.01": [{"name": "loss", "factor": 0.01}],
    "update x100": [{"name": "scale", "factor": 100.0}],
    "update x0.01": [{"name": "scale", "factor": 0.01}],
    "sign flipped": [FLIPPED],
    "sign flipped x5": [{"name": "scale", "factor": -5.0}],
    "loss x100 and flipped": [{"name": "loss", "factor": 100.0}, FLIPPED],
    "copy of another's": ["copy"],
    "zero": ["zero"],
    "random": ["random"],
    "random x10": [{"name": "random", "times": 10.0}],
    "not a number": ["nan"],
    "samples x100": [{"name": "samples", "factor": 100.0}],
    "accuracy told as 0": [{"name": "accuracy", "value": 0.0}],
    "labels flipped": ["labels"],
    "one flipped update by all": [FLIPPED, "same"],
}
TOGETHER = ("one flipped update by all",)  # needs several liars
GUARDS: dict[str, Any] = {"off": [], "on": "default"}


class Trial(NamedTuple):
    """What a run is of."""

    method: str
    attack: str
    guards: str


@dataclass(frozen=True)
class Bench:
    """The runs of a table, and what each is of."""

    runs: dict[Trial, list[Run]]

    @property
    def all(self) -> list[Run]:
        """Seed by seed, so that a table is complete for the first seeds early."""
        return sorted((run for runs in self.runs.values() for run in runs), key=lambda run: run.config.seed)


def bench(
    study: Study,
    seeds: Sequence[int],
    settings: Iterable[str],
    out: Path,
    *,
    share: float = 0.1,
    attacks: Sequence[str] = (),
    guards: Mapping[str, Any] = GUARDS,
) -> Bench:
    """All runs. Without `attacks`, every one that so many liars can do."""
    chosen = list(attacks) or [name for name in ATTACKS if name not in TOGETHER or share > 0.1]
    for name in chosen:
        if name not in ATTACKS:
            raise AdafedError(f"--attack is {name!r}; there are {', '.join(ATTACKS)}")
    chosen = [NONE, *(name for name in chosen if name != NONE)]
    trials = [Trial(method, attack, kind) for method in study.methods for kind in guards for attack in chosen]
    methods = {}
    for trial in trials:
        over = {"attack": {"use": ATTACKS[trial.attack], "share": share}, "guards": {"use": guards[trial.guards]}}
        methods[_label(trial)] = merged(study.methods[trial.method], over)
    runs = planned(study.with_methods(methods), seeds, settings, out)
    return Bench({trial: [run for run in runs if run.method == _label(trial)] for trial in trials})


def _label(trial: Trial) -> str:
    return f"{trial.method}, {trial.attack}, guards {trial.guards}"


class Honest(NamedTuple):
    """The honest clients' accuracies in percent, late in the run."""

    mean: float
    worst: float


def honest(run: Run) -> Honest | None:
    """Means over the evaluations of the last tenth of the rounds; None where the run is not finished."""
    if not (run.directory / "rounds.sqlite").exists():
        return None
    last, records = evaluations(run.directory)
    if last < run.config.rounds or not records:
        return None
    late = [record for record in records if record.round > (1 - LATE) * last] or records[-1:]
    found = []
    for record in late:
        evaluation = record.evaluation()
        assert evaluation is not None
        liars = liars_of(run.config, [client for client, _ in evaluation.scores])
        scores = [score for k, (_, score) in enumerate(evaluation.scores) if k not in liars]
        accuracies = np.array([one.accuracy for one in scores if one.accuracy is not None])
        if not len(accuracies):
            raise AdafedError(f"{run.directory} evaluates no honest client, and the table is of those; lower --share")
        found.append((100 * float(accuracies.mean()), 100 * float(formulas.worst(accuracies, 10))))
    mean, worst = np.mean(found, axis=0)
    return Honest(float(mean), float(worst))


def tables(made: Bench, title: str) -> list[Table]:
    """One for each rule: attacks in rows, guards off and on beside each other."""
    found = {trial: {run.config.seed: honest(run) for run in runs} for trial, runs in made.runs.items()}
    known = {trial: {seed: one for seed, one in seeds.items() if one is not None} for trial, seeds in found.items()}
    methods = list(dict.fromkeys(trial.method for trial in known))
    return [_table(method, {t: seeds for t, seeds in known.items() if t.method == method}, title) for method in methods]


def _table(method: str, found: Mapping[Trial, dict[int, Honest]], title: str) -> Table:
    kinds = list(dict.fromkeys(trial.guards for trial in found))
    columns = [
        Column(f"{kind}: {what}", spread=spread)
        for kind in kinds
        for what, spread in (("mean", STD), ("worst 10%", STD), ("cost, mean", HALF), ("cost, worst 10%", HALF))
    ]
    rows = []
    for attack in dict.fromkeys(trial.attack for trial in found):
        cells: list[Cell] = []
        for kind in kinds:
            cells += _cells(found[Trial(method, attack, kind)], found[Trial(method, NONE, kind)], attack)
        rows.append(Row(attack, tuple(cells)))
    seeds = max((len(one) for one in found.values()), default=0)
    notes = (
        f"guards off and on; in percent, over {seeds} seeds and the evaluations of the last tenth of the rounds",
        "cost: points lost against the run at the same seed in which the liars are honest, over the same clients, with "
        "half the width of the 95 % interval",
    )
    return Table(f"{title}: {method}", tuple(columns), tuple(rows), notes, head="attack")


def _cells(found: Mapping[int, Honest], reference: Mapping[int, Honest], attack: str) -> list[Cell]:
    both = sorted(found.keys() & reference.keys())
    means = [float(np.mean([one[i] for one in found.values()])) for i in (0, 1)] if found else []
    cells = [Cell((mean,), seeds=len(found)) for mean in means] or [Cell(()), Cell(())]
    for i in (0, 1):
        if attack == NONE or not both:
            cells.append(Cell(()))
            continue
        lost = difference([reference[seed][i] - found[seed][i] for seed in both])
        cells.append(interval(lost, 1))
    return cells
