"""PropFair (Zhang et al. 2023): a client maximises the logarithm of what is left of its loss's allowance."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from adafed.client_rules.base import LARGEST, Begun, ClientRule, Visit, register
from adafed.registry import at_least
from adafed.training.local import Gradients, gradients


@register("propfair")
@dataclass(frozen=True)
class PropFair(ClientRule):
    """A batch's loss is -log(1 - f / M) for f its cross-entropy, so its gradient is that of f over M - f.

    Where M - f is below `smallest` the gradient is that of f over M, as in the published code: weaker than just before,
    since such a batch is taken for an outlier. With the rule fedavg this is the method as published. The losses that
    are told to the server stay those of the cross-entropy.

    Attributes:
        M: The allowance of a loss; above log(classes) for cross-entropy.
        smallest: Where M - f is below it, the gradient is that of f over M.
    """

    summary = "the local loss is -log(1 - loss / M)"
    source = "Zhang et al. 2023"
    makes_gradients = True
    M: float = 5.0
    smallest: float = 0.2

    def __post_init__(self) -> None:
        at_least("propfair.M", self.M, 0.0, strictly=True, most=LARGEST)
        at_least("propfair.smallest", self.smallest, 1e-9, most=LARGEST)

    def begin(self, visit: Visit) -> Begun:
        model, data, how = visit.model, visit.data, visit.trainer.how

        def proportional(batch: torch.Tensor) -> tuple[Gradients, float]:
            grads, value = gradients(model, data, batch, how)
            left = self.M - value
            return list(torch._foreach_div(grads, left if left >= self.smallest else self.M)), value

        return Begun(gradients=proportional)
