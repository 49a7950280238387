"""FedGini (Li et al. 2023): the rank of a client's loss sets its weight, progressively."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from adafed.errors import AdafedError
from adafed.server_rules.base import Answer, Facts, Need, Numbers, Rule, register


@register("fedgini")
@dataclass(frozen=True)
class FedGini(Rule):
    """y_k = epsilon / K + (1 - epsilon) r_k (r_k + 1) / (K (K^2 - 1) / 3), r_k = 0 for the smallest loss to K - 1.

    epsilon = 1 is the plain average; at 0 the best-off client has no weight. Ties are broken by client id. The formula
    is that of the public copy in FedGF's code; the one in FedLF's adds the second part to 1 instead, before all are
    divided by their sum, and so is nearly the plain average. One of the two ranks from the largest loss and the other
    mixes ranks with positions; here the larger loss weighs more, which is the method's aim. FedGF's begins with the
    plain average until the length of its updates no longer falls: that beginning is left out.

    Attributes:
        epsilon: The part of a weight that all have alike.
    """

    summary = "the rank of the loss, progressively, over a plain average"
    source = "Li et al. 2023"
    grid = {"epsilon": (0.2, 0.5, 0.8)}  # not in the paper's tables
    epsilon: float = 0.5

    def __post_init__(self) -> None:
        if not 0.0 <= self.epsilon <= 1.0:
            raise AdafedError(f"rule.epsilon is {self.epsilon}; it must be between 0 and 1")

    @property
    def needs(self) -> frozenset[Need]:
        return frozenset({"losses"})

    def answer(self, facts: Facts, state: Numbers) -> Answer:
        count = facts.count
        if count == 1:
            return Answer(np.ones(1))
        ranks = np.empty(count)
        ranks[facts.order_by_loss()] = np.arange(count)
        progressive = 3.0 * ranks * (ranks + 1.0) / (count * (count**2 - 1.0))
        return Answer(self.epsilon / count + (1.0 - self.epsilon) * progressive)
