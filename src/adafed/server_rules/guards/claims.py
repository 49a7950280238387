"""A large loss goes with a long update, which is made of it: a claim that the update's length does not speak for is
bounded.

A client that claims a high loss is served first, so its true loss falls, and its update shrinks to noise while the
claim stays; as the shortest update with the largest claim it would then hold every step of a rule that solves with the
Gram matrix. So a loss counts as at most `times` as much for its update's length as is usual in the cohort. It never
counts as less than `least` of the median: a client of few samples takes few local steps, and is short and badly off at
once.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import copysign
from operator import truediv
from typing import ClassVar

import numpy as np

from adafed.registry import at_least
from adafed.server_rules.base import Facts, Need, altered
from adafed.server_rules.guards.base import GUARDS, Guard, Verdict, median


@GUARDS.register("claims")
@dataclass(frozen=True)
class CredibleClaims(Guard):
    """A loss that is too large for the length of its update counts as less, for rules that solve with the Gram matrix.

    Attributes:
        times: How many times too large is too much.
        least: The least that it counts as, in medians of the cohort.
    """

    summary: ClassVar[str] = "a loss too large for its update's length counts as less, for rules that solve"
    times: float = 2.0
    least: float = 0.5

    def __post_init__(self) -> None:
        at_least("claims.times", self.times, 1.0)
        at_least("claims.least", self.least, 0.0, most=1.0)

    @property
    def needs(self) -> frozenset[Need]:
        return frozenset({"gram"})

    def judge(self, facts: Facts, needs: frozenset[Need]) -> Verdict:
        if facts.losses is None or not {"losses", "gram"} <= needs:
            return Verdict(facts)
        losses, norms = facts.losses.tolist(), facts.need_norms().tolist()
        sizes = list(map(abs, losses))  # rules that solve take |f|
        usual = median(list(map(truediv, sizes, norms))) if all(norms) else 0.0
        if usual <= 0.0:
            return Verdict(facts)
        times, least = self.times * usual, self.least * median(sizes)
        most = [max(times * norm, least) for norm in norms]
        bounded = {k: copysign(most[k], losses[k]) for k, size in enumerate(sizes) if size > most[k]}
        if not bounded:
            return Verdict(facts)
        reason = "loss {:.3g} counts as {:.3g}: its update is short for it"
        told = {k: reason.format(losses[k], loss) for k, loss in bounded.items()}
        counted = np.array([bounded.get(k, loss) for k, loss in enumerate(losses)])
        return Verdict(altered(facts, losses=counted), bounded=told)
