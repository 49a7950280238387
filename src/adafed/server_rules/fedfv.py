"""FedFV (Wang et al. 2021): conflicting updates are projected off each other before they are averaged."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from adafed.errors import AdafedError
from adafed.registry import at_least
from adafed.server_rules.base import Answer, Facts, Matrix, Need, Numbers, Rule, Vector, register

CANCELLED = 1e-7  # of the length of its terms: a sum's squared length is known to 1e-16 of theirs squared


@register("fedfv")
@dataclass(frozen=True)
class FedFV(Rule):
    """Internal conflicts: in ascending order of loss, every client but the share alpha with the largest losses has its
    update projected off each original update it has a negative inner product with; the results are averaged.
    External conflicts: for each of the last tau rounds, oldest first, the average is projected off the sum of the
    updates remembered from then (of clients not in this cohort) that oppose it. Last, it gets the mean's length.

    Every vector here is a combination of the rows of the Gram matrix, so the rule works on combinations.

    Attributes:
        alpha: The share of the clients, those with the largest losses, whose updates are left as they are.
        tau: For how many rounds the updates of absent clients are remembered; 0: no external conflicts.
    """

    summary = "project conflicting updates off each other, then average"
    source = "Wang et al. 2021"
    grid = {"alpha": (0.0, 0.1, 0.2, 0.5)}  # not in the paper's tables; of the values its authors tried
    alpha: float = 0.1
    tau: int = 1

    def __post_init__(self) -> None:
        if not 0.0 <= self.alpha <= 1.0:
            raise AdafedError(f"rule.alpha is {self.alpha}; it must be between 0 and 1")
        at_least("rule.tau", self.tau, 0)

    @property
    def needs(self) -> frozenset[Need]:
        return frozenset({"losses", "gram"})

    @property
    def remembers(self) -> int:
        return self.tau

    def answer(self, facts: Facts, state: Numbers) -> Answer:
        gram, count = facts.need_gram(), facts.count
        mean = np.zeros(len(gram))
        mean[:count] = 1.0 / count
        combination = self._without_internal_conflicts(facts, gram)
        for past in range(max(1, facts.round - self.tau), facts.round):
            rows = [
                count + i
                for i, (client, round_) in enumerate(facts.memory)
                if round_ == past and client not in facts.clients and gram[count + i] @ combination < 0
            ]
            opponents = np.zeros(len(gram))
            opponents[rows] = 1.0
            combination = _projected_off(gram, combination, opponents)
        length, target = _length(gram, combination), _length(gram, mean)
        terms = float(np.abs(combination) @ np.sqrt(np.diag(gram)))
        if length <= CANCELLED * terms:  # there is no direction to lengthen, only rounding
            return Answer(np.zeros(len(gram)), notes={"cancelled": True})
        return Answer(combination * (target / length))

    def _without_internal_conflicts(self, facts: Facts, gram: Matrix) -> Vector:
        order = facts.order_by_loss()
        kept = order[math.ceil((facts.count - 1) * (1.0 - self.alpha)) :] if self.alpha > 0 else []
        total = np.zeros(len(gram))
        for client in order:
            own = np.zeros(len(gram))
            own[client] = 1.0
            if client not in kept:
                for other in order:
                    if other != client:
                        own[other] -= min(own @ gram[:, other], 0.0) / gram[other, other]
            total += own
        return total / facts.count


def _projected_off(gram: Matrix, vector: Vector, other: Vector) -> Vector:
    """`vector` less its part along `other` where the two conflict; both as combinations of the Gram's rows."""
    inner, square = vector @ gram @ other, other @ gram @ other
    return vector - inner / square * other if inner < 0 and square > 0 else vector


def _length(gram: Matrix, vector: Vector) -> float:
    return math.sqrt(max(float(vector @ gram @ vector), 0.0))
