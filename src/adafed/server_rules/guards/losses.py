"""A bound on the loss a client reports, relative to the cohort's median: no client takes the step by claiming a huge
one.

The bound is soft: above b = times * median a loss f counts as b + (most * median - b) (1 - b / f), which rises with f
and stays below most * median. So the order of the losses is kept, and whoever is worst off still comes first.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from adafed.registry import at_least
from adafed.server_rules.base import Facts, Need, Vector
from adafed.server_rules.guards.base import GUARDS, Guard, Verdict, median


def soft(values: Vector, bound: float, most: float) -> Vector:
    """Values above `bound`, pressed together below `most` in their order."""
    pressed: Vector = bound + (most - bound) * (1.0 - bound / values)
    return pressed


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
        losses = facts.losses
        usual = median(np.abs(losses))
        above = np.flatnonzero(losses > self.times * usual)
        if not len(above) or usual == 0.0:
            return Verdict(facts)
        bounded = losses.copy()
        bounded[above] = soft(losses[above], self.times * usual, self.most * usual)
        told = {int(k): f"loss {losses[k]:.3g} counts as {bounded[k]:.3g}" for k in above}
        return Verdict(replace(facts, losses=bounded), bounded=told)
