"""FedCorr's client half: a noisy client is held to the global model and trains on corrected labels, and every client
tells how its model answers its samples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch

from adafed.client_rules.base import LARGEST, Begun, ClientRule, Orders, Plan, Setting, Tensors, Told, Visit, register
from adafed.client_rules.fedcorr.answers import predicted, suspicion
from adafed.client_rules.fedcorr.plan import Stages
from adafed.registry import at_least, below
from adafed.training.flat_module import FlatModule
from adafed.training.local import Gradients, Samples


@register("fedcorr")
@dataclass(frozen=True)
class FedCorr(ClientRule):
    """Wrong labels are found and corrected before the training proper. Defaults are its authors' for CIFAR-10, but for
    the rounds of the clean clients, of which they have 500.

    Attributes:
        iterations: T_1: how often the first stage visits everyone.
        group: Clients in a round of the first stage.
        clean_rounds: T_2: rounds of the clients found clean; the rest of the run is T_3.
        beta: How much a noisy client is held to the global model in the first stage.
        kappa: A client with at most this share of wrong labels is clean.
        neighbours: Of the local intrinsic dimension.
        relabelled: pi: this share of the labels found wrong is corrected.
        confidence: Of the global model in its answer, before a label is taken from it.
    """

    summary = "finds clients with wrong labels and corrects the labels, in three stages"
    source = "Xu et al. 2022"
    section = "fedcorr"
    iterations: int = 5
    group: int = 1
    clean_rounds: int = 20
    beta: float = 5.0
    kappa: float = 0.1
    neighbours: int = 20
    relabelled: float = 0.5
    confidence: float = 0.5

    def __post_init__(self) -> None:
        for option, least in (("iterations", 1), ("group", 1), ("neighbours", 2)):  # of one neighbour: 0 / 0
            at_least(f"fedcorr.{option}", getattr(self, option), least)
        at_least("fedcorr.clean_rounds", self.clean_rounds, 0)
        at_least("fedcorr.beta", self.beta, 0.0, most=LARGEST)
        below("fedcorr.kappa", self.kappa, 1.0)
        below("fedcorr.confidence", self.confidence, 1.0)
        at_least("fedcorr.relabelled", self.relabelled, 0.0, strictly=True)
        below("fedcorr.relabelled", self.relabelled, 1.0 + 1e-12)

    def plan(self, setting: Setting) -> Plan:
        return Stages(self, setting)

    def samples(self, data: Samples, orders: Orders) -> Samples:
        labels = orders.get("labels")
        if labels is None:
            return data
        return replace(data, targets=torch.tensor(labels, dtype=torch.int64, device=data.inputs.device))

    def begin(self, visit: Visit) -> Begun:
        """The gradient of pull ||theta - theta_t||, not squared, in every batch but an epoch's first, where it has none
        in the first epoch and the authors' code takes none in the others."""
        pull = float(visit.orders.get("pull", 0.0))
        if not pull:
            return Begun()
        how, parameters = visit.trainer.how, visit.model.trained
        anchor = visit.model.trained_views(visit.received)
        epoch = how.steps(len(visit.data)) // how.epochs

        def correct(grads: Gradients, step: int) -> Gradients:
            if (step - 1) % epoch == 0:
                return grads
            away = torch._foreach_sub(parameters, anchor)
            length = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(away))).item()
            return list(torch._foreach_add(grads, away, alpha=pull / length)) if length else grads

        return Begun(correct=correct)

    def end(self, visit: Visit) -> None:
        if visit.orders.get("suspected"):
            visit.tell |= suspicion(visit.model, visit.data, self.neighbours)

    def answer(self, model: FlatModule, data: Samples) -> Told:
        return predicted(model, data)

    def trained_rounds(self, rounds: int, clients: int, share: float) -> float:
        """Rounds of the first stage have a client or so each."""
        return rounds - self.iterations * self.visits(clients) + self.iterations / share

    def visits(self, clients: int) -> int:
        """Rounds of one iteration of the first stage."""
        return -(-clients // self.group)

    def own(self, named: Mapping[str, torch.Tensor]) -> Tensors:
        """Version 0.1 had another name for what is known."""
        before = {
            name.removeprefix("correction."): one for name, one in named.items() if name.startswith("correction.")
        }
        return super().own(named) or before

    @property
    def label(self) -> str:
        return "FedCorr"
