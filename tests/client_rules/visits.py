"""One client trained under some client rules, for their tests: the hand-checked quadratic, or a small layer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from quadratics import SIZE, Quadratics
from torch import nn

from adafed.client_rules import ClientRule, Visit
from adafed.client_rules.base import Tensors, Told
from adafed.engines.units import KeptFile
from adafed.engines.visiting import Visiting
from adafed.training.flat_module import FlatModule
from adafed.training.local import Assignment, LocalTrainer, LocalTraining, Samples

GD = LocalTraining(epochs=1, batch_size=None, momentum=0.0, weight_decay=0.0, loss="cross-entropy", seed=1)
WORK = Assignment(client=3, round=1, lr=0.1)


def quadratic(target: list[float]) -> tuple[FlatModule, Samples]:
    """Has the gradient theta - target."""
    sample = torch.cat([torch.eye(SIZE).reshape(-1), torch.tensor(target, dtype=torch.float32)])
    return FlatModule(Quadratics()), Samples(sample[None], torch.zeros(1, dtype=torch.int64))


def layer() -> tuple[FlatModule, Samples]:
    torch.manual_seed(0)
    data = Samples(torch.randn(6, 3), torch.tensor([0, 1, 0, 1, 1, 0]))
    return FlatModule(nn.Linear(3, 2)), data


@dataclass(frozen=True)
class Trained:
    model: torch.Tensor
    row: torch.Tensor
    steps: int
    told: dict[str, Told]


def trained(
    rules: list[ClientRule],
    given: tuple[FlatModule, Samples],
    received: torch.Tensor | None = None,
    *,
    initial: torch.Tensor | None = None,
    how: LocalTraining = GD,
    work: Assignment = WORK,
    kept: KeptFile | None = None,
    orders: Mapping[str, Mapping[str, Any]] = {},
) -> Trained:
    """By default from the model as it stands."""
    model, data = given
    received = model.vector.clone() if received is None else received
    visiting = Visiting(rules, model, LocalTrainer(model, how), received if initial is None else initial)
    row = torch.full((visiting.width,), torch.nan)
    steps, _, told = visiting.trained(work, visiting.samples(data, orders), received, row, kept, orders)
    return Trained(received[: model.length] - row[: model.length], row, steps, told)


def visit(
    given: tuple[FlatModule, Samples],
    received: torch.Tensor | None = None,
    *,
    how: LocalTraining = GD,
    orders: Mapping[str, Any] = {},
    kept: Tensors | None = None,
) -> Visit:
    """What a rule's `begin` and `end` are given."""
    model, data = given
    received = model.vector.clone() if received is None else received
    return Visit(model, received, received, data, WORK, LocalTrainer(model, how), orders, kept or {}, {})
