"""A bound on the loss a client reports, relative to the cohort's median: no client takes the step by claiming a huge
one.

The bound is soft: above b = times * median a loss f counts as b + (most * median - b) (1 - b / f), which rises with f
and stays below most * median. So the order of the losses is kept, and whoever is worst off still comes first. A loss
below zero is bounded by its size: rules that take |f| would be led by it just as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import copysign
from typing import ClassVar

import numpy as np

from adafed.registry import at_least
from adafed.server_rules.base import Facts, Need, altered
from adafed.server_rules.guards.base import GUARDS, Guard, Verdict, median


def soft(value: float, bound: float, most: float) -> float:
    """A value above `bound`, pressed below `most`: larger ones stay larger."""
    return bound + (most - bound) * (1.0 - bound / value)


@GUARDS.register("losses")
@dataclass(frozen=True)
class BoundedLosses(Guard):
    """Losses above so many medians count as less; their order is kept.

    Attributes:
        times: The medians from which on a loss is bounded.
        most: The most that it counts as, in medians.
    """

    summary: ClassVar[str] = (
        "losses above times the cohort's median count as less, in their order, at most so many medians"
    )
    times: float = 1.5
    most: float = 2.0

    def __post_init__(self) -> None:
        at_least("losses.times", self.times, 1.0)
        at_least("losses.most", self.most, self.times)

    def judge(self, facts: Facts, needs: frozenset[Need]) -> Verdict:
        if facts.losses is None or "losses" not in needs:
            return Verdict(facts)
        losses = facts.losses.tolist()
        usual = median(list(map(abs, losses)))
        bound, most = self.times * usual, self.most * usual
        far = [(k, loss) for k, loss in enumerate(losses) if abs(loss) > bound]
        bounded = {k: copysign(soft(abs(loss), bound, most), loss) for k, loss in far}
        if not bounded or usual == 0.0:
            return Verdict(facts)
        told = {k: f"loss {losses[k]:.3g} counts as {loss:.3g}" for k, loss in bounded.items()}
        counted = np.array([bounded.get(k, loss) for k, loss in enumerate(losses)])
        return Verdict(altered(facts, losses=counted), bounded=told)
