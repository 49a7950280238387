"""PropFair (Zhang et al. 2023) as a server rule: proportional fairness of the clients' utilities M - F_k."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from adafed.registry import at_least
from adafed.server_rules.base import Answer, Facts, Need, Numbers, Rule, register


@register("propfair")
@dataclass(frozen=True)
class PropFair(Rule):
    """Maximises sum_k p_k log(M - F_k), whose gradient has weights p_k / (M - F_k): y is these, divided by their sum.

    Its authors change the clients' local loss instead: that is the client rule of this name. The two are the same, but
    for the length of the step, where a client takes one step on all its samples. A utility below `smallest` counts as
    that. M should exceed the losses of an untrained model: log(classes) for cross-entropy. M -> infinity is FedAvg.

    Attributes:
        M: The allowance of a loss; above log(classes) for cross-entropy.
        smallest: The least that M - F_k counts as.
    """

    summary = "sample count over what is left of the loss's allowance M"
    source = "Zhang et al. 2023"
    grid = {"M": (2.0, 3.0, 4.0, 5.0)}  # not in the paper's tables; of the values its authors tried
    M: float = 5.0
    smallest: float = 0.2

    def __post_init__(self) -> None:
        at_least("rule.M", self.M, 0.0, strictly=True)
        at_least("rule.smallest", self.smallest, 1e-9)

    @property
    def needs(self) -> frozenset[Need]:
        return frozenset({"losses", "sizes"})

    def answer(self, facts: Facts, state: Numbers) -> Answer:
        with np.errstate(over="ignore"):
            utilities = np.maximum(self.M - facts.need_losses(), self.smallest)
        sizes = facts.need_sizes() / facts.need_sizes().max()
        weights = sizes * (utilities.min() / utilities)
        return Answer(weights / weights.sum())
