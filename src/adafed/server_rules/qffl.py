"""q-FFL (Li et al. 2020), solved by q-FedAvg: clients with a larger loss weigh more, by the power q."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from adafed.errors import AdafedError
from adafed.registry import at_least
from adafed.server_rules.base import Answer, Facts, Need, Numbers, Rule, register

SMALLEST_LOSS = 1e-10  # the guard of the published code: F^(q-1) has a pole at 0 for q < 1


@register("qffl")
@dataclass(frozen=True)
class QFFL(Rule):
    """Minimises sum_k F_k^(q+1) / (q+1) over clients sampled by size, so sample counts play no part here.

    With L = 1/lr: Delta_k = F_k^q L g_k, h_k = q F_k^(q-1) ||L g_k||^2 + L F_k^q, and d = sum Delta_k / sum h_k.
    `lr=None` takes the clients' learning rate of the round, so that L follows its decay. q = 0 is the plain average.
    With several local steps L g_k is no gradient any more and h_k grows: expect small steps for large q.

    Attributes:
        q: The power of the loss; 0 is the plain average.
        lr: 1/L; None takes the clients' learning rate of the round.
    """

    summary = "q-FedAvg: loss to the power q sets the weight"
    source = "Li et al. 2020"
    degree = None
    grid = {"q": (0.0, 0.001, 0.01, 0.1, 1.0, 2.0, 5.0, 10.0)}
    q: float = 1.0
    lr: float | None = None

    def __post_init__(self) -> None:
        at_least("rule.q", self.q, 0.0)
        if self.lr is not None:
            at_least("rule.lr", self.lr, 0.0, strictly=True)

    @property
    def needs(self) -> frozenset[Need]:
        return frozenset({"losses", "norms"} | ({"local_lr"} if self.lr is None else set()))

    def answer(self, facts: Facts, state: Numbers) -> Answer:
        lr = self.lr if self.lr is not None else facts.local_lr
        if lr is None or not 0 < lr < np.inf:
            raise AdafedError(f"qffl: the local learning rate is {lr}; it must be a finite number greater than 0")
        losses = np.maximum(facts.need_losses(), SMALLEST_LOSS)
        # Relative to L and to the largest loss, which cancel between Delta and h but for one power: F^q itself may
        # overflow. Where h still does, it is infinite and the step 0; a zero update keeps its pole out of h.
        largest = losses.max()
        relative = losses / largest
        with np.errstate(over="ignore"):
            lengths = facts.need_norms() / np.sqrt(lr) / np.sqrt(largest)
            pole = np.where((lengths > 0.0) & (self.q > 0.0), relative ** (self.q - 1.0), 0.0)
            h = self.q * pole * lengths * lengths + relative**self.q
            return Answer(relative**self.q / h.sum())
