"""GIFAIR-FL (Yue et al. 2023), global form: the rank of a client's loss moves its weight up or down."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from adafed.errors import AdafedError
from adafed.server_rules.base import Answer, Facts, Need, Numbers, Rule, register


@register("gifair")
@dataclass(frozen=True)
class GIFAIR(Rule):
    """Penalises the spread of the losses: y_k = p_k + c lambda_max r_k with p_k = n_k / sum n.

    r_k runs from -(K-1) for the smallest loss to K-1 for the largest in steps of 2, and lambda_max = min p / (K-1), so
    that 0 <= c < 1 keeps every weight positive. Ties of the losses are broken by client id.

    Attributes:
        c: How much of the largest possible shift is taken, from 0 (FedAvg) to below 1.
    """

    summary = "sample-count weights, shifted by the rank of the loss"
    source = "Yue et al. 2023"
    c: float = 0.9

    def __post_init__(self) -> None:
        if not 0.0 <= self.c < 1.0:
            raise AdafedError(f"rule.c is {self.c}; it must be at least 0 and less than 1")

    @property
    def needs(self) -> frozenset[Need]:
        return frozenset({"losses", "sizes"})

    def answer(self, facts: Facts, state: Numbers) -> Answer:
        sizes = facts.need_sizes() / facts.need_sizes().max()
        shares = sizes / sizes.sum()
        if facts.count == 1:
            return Answer(shares)
        ranks = np.empty(facts.count)
        ranks[facts.order_by_loss()] = np.linspace(1.0 - facts.count, facts.count - 1.0, facts.count)
        return Answer(shares + self.c * shares.min() / (facts.count - 1) * ranks)
