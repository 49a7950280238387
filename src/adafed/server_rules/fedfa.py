"""FedFA (Huang et al. 2020): accuracy and participation set the weight; server momentum is the optimiser's business."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from adafed.errors import AdafedError
from adafed.registry import at_least, one_of
from adafed.server_rules.base import Answer, Facts, Need, Numbers, Rule, Vector, register

ACCURACY_GUARD, COUNT_GUARD = 1e-6, 1e-5


@register("fedfa")
@dataclass(frozen=True)
class FedFA(Rule):
    """y = alpha A / sum A + beta B / sum B, where A_k = -log2(a_k / sum a) and B_k = -log2(1 - c_k / sum c).

    a_k is the client's training accuracy, c_k the number of rounds it took part in, this one included: low accuracy
    and frequent participation both mean more weight. The method's double momentum is the clients' SGD momentum and the
    server optimiser `sgd(momentum=...)`. Public code disagrees with itself, hence `variant`: "paper" guards only where
    a logarithm would fail; "easyfl" adds 1e-6 and 1e-5 to the shares inside the logarithms (pair it with the server
    optimiser `fedfa-easyfl`, whose momentum has the opposite sign); "fedlf" divides the raw accuracies and counts by
    the sums of the logarithms, which favours accurate clients and need not sum to 1.

    Attributes:
        alpha: How much the accuracies weigh.
        beta: How much the participation weighs.
        variant: "paper", or a public code's formula: "easyfl" or "fedlf".
    """

    summary = "low accuracy and frequent participation weigh more"
    source = "Huang et al. 2020"
    alpha: float = 0.5
    beta: float = 0.5
    variant: Literal["paper", "easyfl", "fedlf"] = "paper"

    def __post_init__(self) -> None:
        at_least("rule.alpha", self.alpha, 0.0)
        at_least("rule.beta", self.beta, 0.0)
        if abs(self.alpha + self.beta - 1.0) > 1e-9:
            raise AdafedError(f"rule.alpha + rule.beta is {self.alpha + self.beta:g}; it must be 1")
        one_of("rule.variant", self.variant, ("paper", "easyfl", "fedlf"))

    @property
    def needs(self) -> frozenset[Need]:
        return frozenset({"accuracies"})

    def initial_state(self) -> Numbers:
        return {"counts": {}}

    def answer(self, facts: Facts, state: Numbers) -> Answer:
        history: dict[str, int] = dict(state["counts"])
        for client in facts.clients[: facts.fresh]:  # those that are remembered did not take part
            history[client] = history.get(client, 0) + 1
        counts = np.array([history.get(client, 1) for client in facts.clients], dtype=np.float64)
        accuracies = facts.need_accuracies()
        if self.variant == "easyfl":
            accuracy_share = _shares(accuracies) + ACCURACY_GUARD
            rest = 1.0 - counts / counts.sum() + COUNT_GUARD
        else:
            guarded = np.maximum(accuracies, ACCURACY_GUARD)
            accuracy_share = guarded / guarded.sum()
            rest = np.maximum(1.0 - counts / counts.sum(), COUNT_GUARD)
        information, frequency = -np.log2(accuracy_share), -np.log2(rest)
        if self.variant == "fedlf":
            coefficients = self.alpha * _shares(accuracies, information) + self.beta * _shares(counts, frequency)
        else:
            coefficients = self.alpha * _shares(information) + self.beta * _shares(frequency)
        return Answer(coefficients, {"counts": history})


def _shares(values: Vector, over: Vector | None = None) -> Vector:
    total = (values if over is None else over).sum()
    return values / total if abs(total) > 0 else np.full(len(values), 1.0 / len(values))
