"""FedDyn (Acar et al. 2021): each client's loss is bent so that all clients agree where the average is stationary."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from adafed.client_rules.base import LARGEST, Begun, ClientRule, Plan, Setting, Tensors, Visit, register
from adafed.registry import at_least
from adafed.training.local import Gradients

BENT = "bent"  # h_k at a client, h at the server


@register("feddyn")
@dataclass(frozen=True)
class FedDyn(ClientRule):
    """A client minimises f_k(y) - <h_k, y> + alpha/2 ||y - theta_t||^2 by its local steps, then
    h_k <- h_k - alpha (y - theta_t). The server's h <- h - alpha/N sum over the cohort of (y_k - theta_t), and its step
    theta_{t+1} = mean of the y_k - h / alpha is the mean update with h / alpha added to the direction.

    As published with the rule fedavg(weighted=false), the optimiser sgd and server.rate = 1. Under another server rule
    the same term is added to that rule's direction.

    Attributes:
        alpha: How much a client is held to the received model, and how fast its h_k moves.
    """

    summary = "clients' losses bent towards agreement, by alpha"
    source = "Acar et al. 2021"
    keeps = (BENT,)
    sums = ("update",)
    alpha: float = 0.1

    def __post_init__(self) -> None:
        at_least("feddyn.alpha", self.alpha, 1e-9, most=LARGEST)

    def plan(self, setting: Setting) -> Plan:
        return _Agreement(self.alpha, setting.clients)

    def begin(self, visit: Visit) -> Begun:
        own = visit.kept.get(BENT)
        if own is None:
            return Begun(pull=self.alpha)
        pieces = visit.model.trained_views(own)

        def correct(grads: Gradients, step: int) -> Gradients:
            return list(torch._foreach_sub(grads, pieces))

        return Begun(pull=self.alpha, correct=correct)

    def end(self, visit: Visit) -> None:
        own, update = visit.kept.get(BENT, visit.zeros()), visit.update
        if bool(update.isfinite().all()):  # else training diverged, and the server does not add it up either
            own = torch.add(own, update, alpha=self.alpha)
        visit.kept[BENT] = own


class _Agreement(Plan):
    """Knows h, the mean of all clients' h_k."""

    def __init__(self, alpha: float, clients: int) -> None:
        self.alpha = alpha
        self.clients = clients

    def fresh(self, length: int) -> Tensors:
        return {BENT: torch.zeros(length)}

    def summed(self, known: Tensors, sums: Tensors) -> tuple[Tensors, torch.Tensor | None]:
        mean = torch.add(known[BENT], sums["update"], alpha=self.alpha / self.clients)
        return {BENT: mean}, mean / self.alpha
