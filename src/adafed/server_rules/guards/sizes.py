"""A bound on the sample count a client reports, relative to the cohort's median; soft, as that on the losses is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from adafed.registry import at_least
from adafed.server_rules.base import Facts, Need, altered
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
        sizes = facts.sizes.tolist()
        bounded = self._bounded(sizes)
        if not bounded:
            return Verdict(facts)
        told = {k: f"sample count {sizes[k]:g} counts as {size:.4g}" for k, size in bounded.items()}
        counts = np.array([bounded.get(k, size) for k, size in enumerate(sizes)])
        return Verdict(altered(facts, sizes=counts), bounded=told)

    def _bounded(self, sizes: Sequence[float]) -> dict[int, float]:
        """What those above the bound count as."""
        usual = median(list(sizes))
        bound, most = self.times * usual, self.most * usual
        return {k: soft(size, bound, most) for k, size in enumerate(sizes) if size > bound}


def counted(sizes: Sequence[float], guards: Iterable[Guard]) -> list[float]:
    """What sample counts weigh where something beside the rule is averaged by them, such as BatchNorm's statistics."""
    found = list(sizes)
    for guard in guards:
        if isinstance(guard, BoundedSizes) and found:
            bounded = guard._bounded(found)
            found = [bounded.get(k, size) for k, size in enumerate(found)]
    return found
