"""Ditto (Li et al. 2021): every client keeps a model of its own, pulled towards the global one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch

from adafed.client_rules.base import LARGEST, ClientRule, Tensors, Visit, register
from adafed.registry import at_least

KEPT = "personal"


@register("ditto")
@dataclass(frozen=True)
class Ditto(ClientRule):
    """v_k <- v_k - lr (grad f_k(v_k) + lambda (v_k - theta_t)), over the same batches as the global model's.

    The global model is trained by any server rule as if there were no personal ones. A client that was never drawn has
    the first model of all.
    """

    summary = "a personal model for each client, pulled towards the global one by lambda"
    source = "Li et al. 2021"
    section = "ditto"
    keeps = (KEPT,)
    personalises = True
    work = 2.0
    strength: float = field(default=0.1, metadata={"key": "lambda"})
    lr: float | None = None  # defaults to local.lr of the round

    def __post_init__(self) -> None:
        at_least("ditto.lambda", self.strength, 0.0, most=LARGEST)
        if self.lr is not None:
            at_least("ditto.lr", self.lr, 0.0, strictly=True, most=LARGEST)

    def end(self, visit: Visit) -> None:
        own = visit.kept.get(KEPT, visit.initial)
        visit.kept[KEPT] = visit.also_train(own, pull=self.strength, lr=self.lr)

    def personal_model(self, kept: Tensors, initial: torch.Tensor) -> torch.Tensor:
        return kept.get(KEPT, initial)

    def own(self, named: Mapping[str, torch.Tensor]) -> Tensors:
        """Version 0.1 kept it under this name alone."""
        return {KEPT: named[KEPT]} if KEPT in named else super().own(named)

    @property
    def label(self) -> str:
        return f"Ditto({self.strength:g})"
