"""Strongly convex quadratics as a federation: each client's loss is 1/2 (theta - c_k)' A_k (theta - c_k) + 1.

A sample is A_k and c_k; the model's cross-entropy is the quadratic: two logits (0, z) cost log(1 + e^z) in class 0,
which is the value wanted for z = log(e^value - 1).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from adafed.config.configuration import Config, config_from
from adafed.config.merging import merged
from adafed.data.base import ClientData, Normalisation, Split

SIZE, CLIENTS = 3, 4


class Quadratics(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.theta = nn.Parameter(torch.tensor([2.0, -1.5, 1.0]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        matrices, centres = x[:, : SIZE**2].view(-1, SIZE, SIZE), x[:, SIZE**2 :]
        away = self.theta - centres
        value = torch.einsum("ni,nij,nj->n", away, matrices, away) / 2 + 1.0
        return torch.stack([torch.zeros_like(value), value + torch.log(-torch.expm1(-value))], dim=1)


class Federation:
    """Hessians that do not commute, minima apart."""

    name, classes, checksum, normalisation = "quadratics", 2, "0" * 64, Normalisation()
    input_shape = (SIZE**2 + SIZE,)

    def __init__(self) -> None:
        random = np.random.default_rng(3)
        turned = [np.linalg.qr(random.standard_normal((SIZE, SIZE)))[0] for _ in range(CLIENTS)]
        scales = random.uniform(0.4, 3.0, size=(CLIENTS, SIZE))
        self.hessians = [turn @ np.diag(scale) @ turn.T for turn, scale in zip(turned, scales, strict=True)]
        self.centres = random.standard_normal((CLIENTS, SIZE))
        self.ids = tuple(str(k) for k in range(CLIENTS))
        self.train_sizes = np.full(CLIENTS, 2)

    def client(self, index: int) -> ClientData:
        sample = np.concatenate([self.hessians[index].reshape(-1), self.centres[index]]).astype(np.float32)
        inputs = np.tile(sample, (2, 1))
        part = Split(inputs, np.zeros(2, dtype=np.int64))
        return ClientData(part, Split(inputs[:0], part.targets[:0]), Split(inputs[:1], part.targets[:1]))

    def optimum(self) -> torch.Tensor:
        """Of the average."""
        pulled = sum(a @ c for a, c in zip(self.hessians, self.centres, strict=True))
        return torch.from_numpy(np.linalg.solve(sum(self.hessians), pulled)).float()


def experiment(**changes: Any) -> Config:
    """Five full-batch steps a round, everyone in every round, the plain average."""
    base = {
        "model": {"name": "quadratics:Quadratics"},
        "rule": {"name": "fedavg", "weighted": False},
        "local": {"batch_size": "full", "lr": 0.1, "epochs": 5},
        "split": {"validation": 0.0},
        "evaluation": {"every": 10**6, "improvement_every": 0},
        "rounds": 150,
        "run": {"workers": 0},
    }
    return config_from(merged(base, changes))


def away(config: Config) -> float:
    """How far from the optimum of the average a run ends."""
    from adafed.engines.local.simulate import Simulation

    federation = Federation()
    with Simulation(config, federation=federation) as simulation:
        for _ in simulation.rounds():
            pass
        return float((simulation.state.parameters - federation.optimum()).norm())
