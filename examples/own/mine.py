"""Five parts of one's own in one file: a server rule, a client rule, a metric, a model and a data set."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from adafed.client_rules.base import Begun, ClientRule, Visit
from adafed.metrics import Evaluated, Metric
from adafed.server_rules.base import Answer, Facts, Rule


@dataclass(frozen=True)
class ByLoss(Rule):
    """A client weighs as its loss to a power: 0 is the plain average."""

    summary = "the loss to a power is the weight"
    power: float = 1.0

    needs = frozenset({"losses"})

    def answer(self, facts: Facts, state: dict[str, object]) -> Answer:
        losses = np.maximum(facts.need_losses(), 1e-12)
        weights = (losses / losses.max()) ** self.power
        return Answer(weights / weights.sum())


@dataclass(frozen=True)
class Drifting(ClientRule):
    """Every client remembers the way it went last time and leans a little towards it."""

    summary = "local steps lean towards the client's last update"
    keeps = ("way",)
    lean: float = 0.1

    def begin(self, visit: Visit) -> Begun:
        if "way" not in visit.kept:
            return Begun()
        way = visit.model.trained_views(visit.kept["way"])
        return Begun(correct=lambda grads, step: list(torch._foreach_add(grads, way, alpha=self.lean)))

    def end(self, visit: Visit) -> None:
        visit.kept["way"] = visit.update


def _gap(evaluated: Evaluated) -> float:
    return float(evaluated.accuracies.max() - evaluated.accuracies.min())


gap = Metric(_gap, "best - worst", direction=-1, percent=True)


class Net(nn.Module):
    def __init__(self, input_shape: tuple[int, ...], classes: int, hidden: int = 16) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(input_shape[0], hidden), nn.Tanh(), nn.Linear(hidden, classes))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.layers(x)
        return scores


def load(clients: int = 6, samples: int = 60, seed: int = 0) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Each client sees the same two classes turned by an angle of its own."""
    random = np.random.default_rng(seed)
    made = {}
    for client in range(clients):
        x = random.normal(size=(samples, 2)).astype(np.float32)
        angle = client / clients * np.pi / 2
        made[f"turned-{client}"] = (x, (x @ np.array([np.cos(angle), np.sin(angle)]) > 0).astype(np.int64))
    return made
