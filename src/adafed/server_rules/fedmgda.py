"""FedMGDA+ (Hu et al. 2022): the shortest vector in the hull of the unit updates, near a prior."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from adafed.algebra.hulls import boxed_simplex_point, simplex_point
from adafed.registry import at_least, one_of
from adafed.server_rules.base import Answer, Facts, Need, Numbers, Rule, register


@register("fedmgda+")
@dataclass(frozen=True)
class FedMGDA(Rule):
    """min ||sum lambda_k u_k||^2 over the simplex with |lambda_k - prior_k| <= epsilon, where u_k = g_k / ||g_k||.

    `prior` is "uniform" (1/K, as in the authors' code) or "size" (n_k / sum n). epsilon = 0 is the average of the unit
    updates, epsilon >= 1 leaves only the simplex. The step has length at most eta_t at every stage of training, so it
    needs a decaying server rate to converge. The box can cost the common descent that the free problem has.

    Attributes:
        epsilon: How far a coefficient may be from its prior: 0 is the average of the unit updates, 1 or more
            leaves only the simplex.
        prior: "uniform", 1/K as in the authors' code, or "size", n_k / sum n.
    """

    summary = "shortest vector in the hull of the unit updates, near a prior"
    source = "Hu et al. 2022"
    degree = 0
    grid = {"epsilon": (0.01, 0.05, 0.1, 0.5, 1.0)}
    epsilon: float = 0.1
    prior: Literal["uniform", "size"] = "uniform"

    def __post_init__(self) -> None:
        at_least("rule.epsilon", self.epsilon, 0.0)
        one_of("rule.prior", self.prior, ("uniform", "size"))

    @property
    def needs(self) -> frozenset[Need]:
        return frozenset({"gram"} | ({"sizes"} if self.prior == "size" else set()))

    def answer(self, facts: Facts, state: Numbers) -> Answer:
        gram = facts.need_gram()
        lengths = np.sqrt(np.diag(gram))
        unit = gram / np.outer(lengths, lengths)
        sizes = facts.need_sizes() if self.prior == "size" else np.ones(facts.count)
        prior = sizes / sizes.max() / (sizes / sizes.max()).sum()
        if self.epsilon >= 1.0:
            weights = simplex_point(unit, np.ones(facts.count))
        else:
            lower, upper = np.maximum(prior - self.epsilon, 0.0), np.minimum(prior + self.epsilon, 1.0)
            weights = boxed_simplex_point(unit, lower, upper)
        return Answer(weights / lengths, notes={"weights": weights.tolist()})
