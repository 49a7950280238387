"""SCAFFOLD (Karimireddy et al. 2020): control variates take the drift of each client out of its local steps."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from adafed.client_rules.base import Begun, ClientRule, Plan, Setting, Tensors, Visit, register
from adafed.training.local import Gradients

CONTROL, CHANGE = "control", "change"


@register("scaffold")
@dataclass(frozen=True)
class SCAFFOLD(ClientRule):
    """A local step is y <- y - lr (grad f_k(y) - c_k + c). After E of them (the authors' option II)
    c_k' = c_k - c + (theta_t - y) / (E lr), and the server's c <- c + 1/N sum over the cohort of (c_k' - c_k).

    c_k, an estimate of the client's gradient, stays with the client; c, the mean of all N, goes out with the model.
    Local momentum and weight decay are not in the published formula: with them c_k is no longer a gradient's estimate.
    """

    summary = "control variates correct the drift of local steps"
    source = "Karimireddy et al. 2020"
    keeps = (CONTROL,)
    receives = (CONTROL,)
    sends = (CHANGE,)
    sums = (CHANGE,)

    def plan(self, setting: Setting) -> Plan:
        return _Controls(setting.clients)

    def begin(self, visit: Visit) -> Begun:
        own = visit.kept.get(CONTROL)
        shift = visit.broadcast[CONTROL] if own is None else visit.broadcast[CONTROL] - own
        pieces = visit.model.trained_views(shift)

        def correct(grads: Gradients, step: int) -> Gradients:
            return list(torch._foreach_add(grads, pieces))

        return Begun(correct=correct)

    def end(self, visit: Visit) -> None:
        control = visit.kept.get(CONTROL, visit.zeros())
        change = visit.update / (visit.steps * visit.work.lr) - visit.broadcast[CONTROL]
        if not bool(change.isfinite().all()):  # training diverged: nothing was learnt of the gradient
            change = visit.zeros()
        visit.kept[CONTROL] = control + change
        visit.send[CHANGE] = change


class _Controls(Plan):
    """Knows c."""

    def __init__(self, clients: int) -> None:
        self.clients = clients

    def fresh(self, length: int) -> Tensors:
        return {CONTROL: torch.zeros(length)}

    def broadcast(self, known: Tensors) -> Tensors:
        return known

    def summed(self, known: Tensors, sums: Tensors) -> tuple[Tensors, torch.Tensor | None]:
        return {CONTROL: torch.add(known[CONTROL], sums[CHANGE], alpha=1.0 / self.clients)}, None
