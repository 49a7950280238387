"""What a page is made from: runs and what is known of them, whatever they were read from.

A run directory knows all of it. A kept results file knows a few numbers for each evaluation, so there `clients` and
`rounds` are missing, and the page says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from adafed.runs.summary import LATE, Metrics, known_mean

Vector = npt.NDArray[np.float64]
COLUMNS = ("mean", "std", "floor", "worst_10", "best_10", "jain")
QUANTILES = (0.0, 0.25, 0.5, 0.75, 1.0)
# Of a configuration, what may differ between runs of one method.
NOT_OF_THE_METHOD = ("seed", "seeds", "run", "track", "name", "rounds", "evaluation", "data.dir", "data.verify")


@dataclass(frozen=True)
class Clients:
    """The clients of one run, in one order. Not-a-number: not known."""

    ids: tuple[str, ...]
    accuracies: Vector  # a row an evaluation, in percent
    loss: Vector  # in the last evaluation
    test_samples: npt.NDArray[np.int64]
    train_samples: Vector
    drawn: npt.NDArray[np.int64]
    coefficient: Vector  # the mean over the rounds in which it was used
    dropped: npt.NDArray[np.int64]
    reasons: Mapping[int, Mapping[str, int]] = field(default_factory=dict)  # what happened to it and why, and how often
    labels: Mapping[int, Mapping[str, int]] | None = None  # training samples of each label


@dataclass(frozen=True)
class Rounds:
    """One number a round. `coefficients` has the quantiles of each round's."""

    at: npt.NDArray[np.int64]
    series: Mapping[str, Vector]
    coefficients: Vector


@dataclass(frozen=True)
class Event:
    """Something that happened in some rounds: `what` is dropped, bounded, warned, not_evaluated, skipped,
    fallback or hidden."""

    what: str
    why: str
    times: int
    rounds: tuple[int, ...]
    clients: int


@dataclass(frozen=True)
class Run:
    """One run. `evaluations` holds, for each measure, its values at `at`, the rounds of the evaluations."""

    method: str
    seed: int
    done: int
    asked: int
    personalised: bool
    at: tuple[int, ...]
    evaluations: Mapping[str, tuple[float | None, ...]]
    source: str
    baseline: bool = False  # plain averaging, which the others are compared with
    checksum: str | None = None
    clients: Clients | None = None
    rounds: Rounds | None = None
    config: Mapping[str, Any] | None = None
    toml: str | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    events: tuple[Event, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def data(self) -> str | None:
        """What the data set is called, where that is known."""
        data = self.facts.get("data")
        return str(data.get("name")) if isinstance(data, dict) else None

    def chosen(self, tail: bool) -> list[int]:
        """The evaluations that are spoken of: the last, or those of the last tenth of the rounds."""
        if not tail:
            return [len(self.at) - 1] if self.at else []
        return [k for k, number in enumerate(self.at) if number > (1 - LATE) * self.done] or self.chosen(False)

    def measures(self, tail: bool) -> Metrics:
        late = self.chosen(tail)
        return {key: known_mean([found[k] for k in late]) for key, found in self.evaluations.items()} if late else {}

    def client_accuracies(self, tail: bool) -> Vector:
        """Of each client, over the evaluations that are spoken of."""
        assert self.clients is not None
        return np.asarray(self.clients.accuracies[self.chosen(tail)].mean(axis=0))


@dataclass(frozen=True)
class Report:
    """All that a page shows. `left_out` says which runs it could not show, and why."""

    title: str
    runs: tuple[Run, ...]
    columns: tuple[str, ...] = COLUMNS
    tail: bool = False
    against: str | None = None
    notes: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()

    @cached_property
    def methods(self) -> dict[str, list[Run]]:
        """Runs by method, in the order of their first run; only such as have an evaluation."""
        found: dict[str, list[Run]] = {}
        for run in self.runs:
            if run.at:
                found.setdefault(run.method, []).append(run)
        return found

    @cached_property
    def reference(self) -> str | None:
        """The method that others are compared with: as asked, or plain averaging, or the first."""
        if self.against is not None:
            return self.against
        plain = [method for method, runs in self.methods.items() if runs[0].baseline and not runs[0].personalised]
        return next(iter([*plain, *self.methods]), None)

    @property
    def seeds(self) -> tuple[int, ...]:
        return tuple(sorted({run.seed for run in self.runs}))

    def pairs(self, method: str, other: str) -> list[tuple[Run, Run]]:
        """Runs of both at the same seed, on the same data as far as is known: there the split, the first model and the
        cohorts are the same."""
        return [(a, b) for a, b in self._at_one_seed(method, other) if _agree(a.checksum, b.checksum)]

    def _at_one_seed(self, method: str, other: str) -> list[tuple[Run, Run]]:
        theirs = {run.seed: run for run in self.methods.get(other, [])}
        both = [(run, theirs[run.seed]) for run in self.methods.get(method, []) if run.seed in theirs]
        return [(a, b) for a, b in both if _agree(a.data, b.data)]

    @property
    def data(self) -> tuple[str, ...]:
        """The data sets that the runs are on, as far as is known."""
        return tuple(sorted({run.data for run in self.runs if run.data is not None}))

    def same_data(self, method: str, other: str) -> bool:
        """Whether the methods' numbers compare, as far as is known: not where all that could be a pair is none."""
        if not any(_agree(a.data, b.data) for a in self.methods[method] for b in self.methods[other]):
            return False
        return bool(self.pairs(method, other)) or not self._at_one_seed(method, other)

    def values(self, method: str, key: str) -> list[float]:
        found = [run.measures(self.tail).get(key) for run in self.methods[method]]
        return [one for one in found if one is not None]


def _agree(one: str | None, other: str | None) -> bool:
    """What is not known may be the same."""
    return None in (one, other) or one == other


def federations(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """Runs whose clients are the same, hold the same samples, and can be set beside each other one by one."""
    found: dict[str, list[Run]] = {}
    for run in runs:
        if run.clients is not None and run.at:
            found.setdefault(run.checksum or run.source, []).append(run)
    return found


def flat(content: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """A configuration as `section.key`, without what does not make the method."""
    found: dict[str, Any] = {}
    for key, value in content.items():
        if f"{before}{key}" in NOT_OF_THE_METHOD:
            continue
        if isinstance(value, Mapping):
            found |= flat(value, f"{before}{key}.")
        else:
            found[f"{before}{key}"] = value
    return found
