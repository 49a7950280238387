"""FedProx (Li et al. 2020): local training is held near the received model."""

from __future__ import annotations

from dataclasses import dataclass

from adafed.client_rules.base import LARGEST, Begun, ClientRule, Visit, register
from adafed.registry import at_least


@register("fedprox")
@dataclass(frozen=True)
class FedProx(ClientRule):
    """Each client minimises f_k(theta) + mu/2 ||theta - theta_t||^2.

    Attributes:
        mu: How much training is held near the received model; `local.mu` in a configuration.
    """

    summary = "local training held near the received model, by mu"
    source = "Li et al. 2020"
    shorthand = ("local.mu", "mu")
    stacks = True
    mu: float = 0.1

    def __post_init__(self) -> None:
        at_least("fedprox.mu", self.mu, 0.0, most=LARGEST)

    def begin(self, visit: Visit) -> Begun:
        return Begun(pull=self.mu)

    @property
    def label(self) -> str:
        return f"FedProx({self.mu:g})"
