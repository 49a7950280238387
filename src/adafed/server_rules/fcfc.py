"""FCFC (Cui et al. 2021), its performance-consistency part: the worst client's loss is minimised, through a smooth
maximum that sharpens; then, if asked, all clients are improved together. Its constraint on groups of a client's own
people is the client rule of this name."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from adafed.algebra.hulls import simplex_point
from adafed.errors import AdafedError
from adafed.registry import at_least
from adafed.server_rules.base import Answer, Facts, Need, Numbers, Rule, register


@register("fcfc")
@dataclass(frozen=True)
class FCFC(Rule):
    """Minimises delta_t log sum_k exp(F_k / delta_t), which tends to max_k F_k: y = softmax(F / delta_t).

    delta_t = delta * decay^(t-1), but at least `smallest`. The AdaFed paper cites the method as a version of AFL and
    does not run it. The client rule of this name adds its constraint on groups, where the data has them. From round
    `pareto_from` on (0: never) the second stage takes the shortest vector of the updates' convex hull, which raises no
    client's loss to first order; the smooth maximum's own gradient lies in that hull, so it adds no constraint.

    Attributes:
        delta: delta_1: how smooth the maximum is in the first round.
        decay: What delta is multiplied with after every round.
        smallest: The least that delta becomes.
        pareto_from: The round from which the second stage is taken; 0: never.
    """

    summary = "smooth maximum of the losses, sharpened over the rounds"
    source = "Cui et al. 2021"
    delta: float = 1.0
    decay: float = 0.99
    smallest: float = 0.05
    pareto_from: int = 0

    def __post_init__(self) -> None:
        at_least("rule.delta", self.delta, 0.0, strictly=True)
        if not 0.0 < self.decay <= 1.0:
            raise AdafedError(f"rule.decay is {self.decay}; it must be greater than 0 and at most 1")
        at_least("rule.smallest", self.smallest, 0.0, strictly=True)
        at_least("rule.pareto_from", self.pareto_from, 0)

    @property
    def needs(self) -> frozenset[Need]:
        return frozenset({"losses"} | ({"gram"} if self.pareto_from else set()))

    def answer(self, facts: Facts, state: Numbers) -> Answer:
        if self.pareto_from and facts.round >= self.pareto_from:
            return Answer(simplex_point(facts.need_gram(), np.ones(facts.count)), notes={"stage": "pareto"})
        delta = max(self.delta * self.decay ** (facts.round - 1), self.smallest)
        losses = facts.need_losses()
        with np.errstate(over="ignore"):
            weights = np.exp((losses - losses.max()) / delta)
        return Answer(weights / weights.sum(), notes={"stage": "worst client", "delta": delta})
