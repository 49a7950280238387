"""A bound for accidents, not for lies: an update many times as long as any round's median so far comes of local
training that has diverged, and an average that takes it in whole may never come back.

It is meant to be so wide that no healthy round meets it, and then it changes no bit: it asks for lengths alone, so
the rule is computed as without it. The measure is the largest median so far and not the last ones, because late in
training, when most updates are tiny, a client that is badly off may honestly be a thousand times as far from its
optimum.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import ClassVar

import numpy as np

from adafed.registry import at_least
from adafed.server_rules.base import Facts, Need, Numbers
from adafed.server_rules.guards.base import GUARDS, LookingBack, Verdict, median


@GUARDS.register("diverged")
@dataclass(frozen=True)
class Diverged(LookingBack):
    """Updates far longer than any round's median so far are shortened.

    Attributes:
        most: The greatest length, in the largest median of the rounds before; in the first round, in its own. A median
            counts as so many times the largest before it at most, for in a cohort of one or two it may be an accident.
    """

    summary: ClassVar[str] = "updates far longer than any round's median so far, of diverged training, count as less"
    most: float = 30.0

    def __post_init__(self) -> None:
        at_least("diverged.most", self.most, 1.0, strictly=True)

    @property
    def needs(self) -> frozenset[Need]:
        return frozenset({"norms"})

    def judge_with(self, facts: Facts, needs: frozenset[Need], state: Numbers) -> Verdict:
        norms = facts.need_norms().tolist()
        finite = [norm for norm in norms if norm < inf]
        now = median(finite) if finite else 0.0
        usual = float(state.get("usual", 0.0)) or now
        longest = self.most * usual
        state = {"usual": max(usual, min(now, longest))}
        if longest == 0.0 or max(norms) <= longest:  # where most stand still, nothing is usual
            return Verdict(facts, state=state)
        multipliers, bounded, dropped = np.ones(facts.count), {}, {}
        for k, norm in enumerate(norms):
            if norm > longest and longest / norm > 0.0:
                multipliers[k] = longest / norm
                bounded[k] = f"length {norm:.3g} counts as {longest:.3g}, {usual:.3g} is usual"
            elif norm > longest:
                dropped[k] = f"length {norm:.3g} is beyond what can be shortened, {usual:.3g} is usual"
        return Verdict(facts, multipliers, dropped, bounded, state=state)
