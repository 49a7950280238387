"""DRFL (Zhao and Joshi 2022): a client's weight grows with its loss, by the power q."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from adafed.registry import at_least
from adafed.server_rules.base import Answer, Facts, Need, Numbers, Rule, register


@register("drfl")
@dataclass(frozen=True)
class DRFL(Rule):
    """y_k = n_k F_k^q / sum_j n_j F_j^q: q-FFL's weights without its step size, and with sample counts.

    q = 0 is FedAvg. All losses zero counts as q = 0. Its authors also draw clients with large losses more often, which
    is the cohort's business and no rule's.

    Attributes:
        q: The power of the loss; 0 is FedAvg.
    """

    summary = "sample count times loss to the power q"
    source = "Zhao and Joshi 2022"
    grid = {"q": (0.0, 0.1, 1.0, 2.0, 5.0)}  # not in the paper's tables
    q: float = 1.0

    def __post_init__(self) -> None:
        at_least("rule.q", self.q, 0.0)

    @property
    def needs(self) -> frozenset[Need]:
        return frozenset({"sizes"} | ({"losses"} if self.q > 0 else set()))

    def answer(self, facts: Facts, state: Numbers) -> Answer:
        weights = facts.need_sizes() / facts.need_sizes().max()
        losses = np.abs(facts.need_losses()) if self.q > 0 else np.ones(facts.count)
        if losses.any():
            weights = weights * (losses / losses.max()) ** self.q
        return Answer(weights / weights.sum())
