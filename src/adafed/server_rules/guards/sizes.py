"""A bound on the sample count a client reports, relative to the cohort's median; soft, as that on the losses is."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from adafed.registry import at_least
from adafed.server_rules.base import Facts, Need
from adafed.server_rules.guards.base import GUARDS, Guard, Verdict, median
from adafed.server_rules.guards.losses import soft


@GUARDS.register("sizes")
@dataclass(frozen=True)
class BoundedSizes(Guard):
    """Sample counts above so many medians count as less; their order is kept.

    Attributes:
        times: The medians from which on a count is bounded.
        most: The most that it counts as, in medians.
    """

    summary: ClassVar[str] = "sample counts above times the cohort's median count as less, at most so many medians"
    times: float = 3.0
    most: float = 6.0

    def __post_init__(self) -> None:
        at_least("sizes.times", self.times, 1.0)
        at_least("sizes.most", self.most, self.times)

    def judge(self, facts: Facts, needs: frozenset[Need]) -> Verdict:
        if facts.sizes is None or "sizes" not in needs:
            return Verdict(facts)
        sizes = facts.sizes
        usual = median(sizes)
        above = np.flatnonzero(sizes > self.times * usual)
        if not len(above):
            return Verdict(facts)
        bounded = sizes.copy()
        bounded[above] = soft(sizes[above], self.times * usual, self.most * usual)
        told = {int(k): f"sample count {sizes[k]:g} counts as {bounded[k]:.4g}" for k in above}
        return Verdict(replace(facts, sizes=bounded), bounded=told)
