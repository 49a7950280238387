"""Ditto (Li et al. 2021): every client keeps a model of its own, pulled towards the global one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import torch

from adafed.client_rules.base import LARGEST, ClientRule, Tensors, Visit, register
from adafed.registry import at_least, one_of

KEPT = "personal"


@register("ditto")
@dataclass(frozen=True)
class Ditto(ClientRule):
    """v_k <- v_k - lr (grad f_k(v_k) + lambda (v_k - theta_t)), over the same batches as the global model's or, with
    `epochs`, for so many epochs in a round.

    The global model is trained by any server rule as if there were no personal ones. A client has the first model of
    all until it is drawn. After the last round, `at_end` personalises once more, pulled to the final global model:
    "undrawn" those that were never drawn, from that model on; "everyone" the others too, each from its own; "nobody".

    Attributes:
        strength: `lambda` in a configuration: how much a personal model is pulled towards the global one.
        lr: The rate of the personal steps; None: the round's `local.lr`.
        epochs: Personal epochs in a round; None: `local.epochs`, on the same batches.
        at_end: Who personalises once more after the last round: "undrawn", "everyone" or "nobody".
    """

    summary = "a personal model for each client, pulled towards the global one by lambda"
    source = "Li et al. 2021"
    section = "ditto"
    keeps = (KEPT,)
    personalises = True
    work = 2.0
    strength: float = field(default=0.1, metadata={"key": "lambda"})
    lr: float | None = None  # defaults to local.lr of the round
    epochs: int | None = None  # defaults to local.epochs
    at_end: Literal["undrawn", "everyone", "nobody"] = "undrawn"

    def __post_init__(self) -> None:
        at_least("ditto.lambda", self.strength, 0.0, most=LARGEST)
        if self.lr is not None:
            at_least("ditto.lr", self.lr, 0.0, strictly=True, most=LARGEST)
        if self.epochs is not None:
            at_least("ditto.epochs", self.epochs, 1, most=LARGEST)
        one_of("ditto.at_end", self.at_end, ("undrawn", "everyone", "nobody"))

    def end(self, visit: Visit) -> None:
        visit.kept[KEPT] = self._trained(visit, visit.kept.get(KEPT, visit.initial))

    def at_last(self, visit: Visit) -> Tensors | None:
        if self.at_end == "nobody" or (self.at_end == "undrawn" and KEPT in visit.kept):
            return None
        return {KEPT: self._trained(visit, visit.kept.get(KEPT, visit.received))}

    def _trained(self, visit: Visit, start: torch.Tensor) -> torch.Tensor:
        return visit.also_train(start, pull=self.strength, lr=self.lr, epochs=self.epochs)

    def personal_model(self, kept: Tensors, initial: torch.Tensor) -> torch.Tensor:
        return kept.get(KEPT, initial)

    def own(self, named: Mapping[str, torch.Tensor]) -> Tensors:
        """Version 0.1 kept it under this name alone."""
        return {KEPT: named[KEPT]} if KEPT in named else super().own(named)

    @property
    def label(self) -> str:
        return f"Ditto({self.strength:g})"
