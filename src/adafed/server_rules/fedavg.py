"""FedAvg (McMahan et al. 2017): the average of the updates, by sample count or plain."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from adafed.server_rules.base import Answer, Facts, Need, Numbers, Rule, register


@register("fedavg")
@dataclass(frozen=True)
class FedAvg(Rule):
    """Minimises sum_k p_k f_k: y_k = n_k / sum n over the cohort, or 1/K with `weighted=False`.

    Attributes:
        weighted: By sample count; otherwise every client counts 1/K.
    """

    summary = "average of the updates, weighted by sample count"
    source = "McMahan et al. 2017"
    weighted: bool = True

    @property
    def needs(self) -> frozenset[Need]:
        return frozenset({"sizes"} if self.weighted else ())

    def answer(self, facts: Facts, state: Numbers) -> Answer:
        if not self.weighted:
            return Answer(np.full(facts.count, 1.0 / facts.count))
        sizes = facts.need_sizes() / facts.need_sizes().max()
        return Answer(sizes / sizes.sum())
