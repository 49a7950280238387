"""Bounds on an update's length, relative to the cohort's median: from above under every rule, and from below for rules
that solve with the Gram matrix, in which the shortest update has the largest say.

From above the median is that of this cohort and of the last rounds': a cohort of few, or one in which many have
diverged at once, is held to what was usual before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from adafed.registry import at_least
from adafed.server_rules.base import Facts, Need, Numbers
from adafed.server_rules.guards.base import GUARDS, LookingBack, Verdict, median


@GUARDS.register("lengths")
@dataclass(frozen=True)
class BoundedLengths(LookingBack):
    """Too long updates are shortened; under rules that solve with the Gram matrix, too short ones are lengthened.

    Attributes:
        most: The greatest length, in medians of this and the last rounds' medians.
        least: The least length, in this round's medians.
        rounds: How many rounds it looks back on.
    """

    summary: ClassVar[str] = "updates longer or much shorter than the cohort's median count as less or more"
    most: float = 2.5
    least: float = 0.3
    rounds: int = 9

    def __post_init__(self) -> None:
        at_least("lengths.most", self.most, 1.0)
        at_least("lengths.least", self.least, 0.0, most=1.0)
        at_least("lengths.rounds", self.rounds, 0)

    @property
    def needs(self) -> frozenset[Need]:
        return frozenset({"gram"})  # whose diagonal they are, and which takes no pass more than the norms alone

    def judge_with(self, facts: Facts, needs: frozenset[Need], state: Numbers) -> Verdict:
        norms = facts.need_norms().tolist()
        usual = median(norms)
        medians = [*state.get("medians", []), usual]
        longest = self.most * median(medians)
        shortest = min(self.least * usual if "gram" in needs else 0.0, longest)
        state = {"medians": medians[-self.rounds :] if self.rounds else []}
        counted = [min(max(norm, shortest), longest) for norm in norms]
        changed = [k for k, norm in enumerate(norms) if counted[k] != norm and norm > 0.0 and counted[k] > 0.0]
        if not changed:
            return Verdict(facts, state=state)
        multipliers = np.ones(facts.count)
        told = {}
        for k in changed:
            multipliers[k] = counted[k] / norms[k]
            told[k] = f"length {norms[k]:.3g} counts as {counted[k]:.3g}, median {usual:.3g}"
        return Verdict(facts, multipliers, bounded=told, state=state)
