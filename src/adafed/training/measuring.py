"""A model on some samples: each sample's loss and whether it was right, and the means of it a client."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

from adafed.training.dense import leaves_inputs
from adafed.training.flat_module import FlatModule
from adafed.training.losses import Loss, sample_losses

EVALUATION_BATCH = 512


class Measured(NamedTuple):
    loss: float
    accuracy: float


@torch.no_grad()
def measure(model: FlatModule, inputs: torch.Tensor, targets: torch.Tensor, loss: Loss) -> torch.Tensor:
    """For every sample its loss and whether it was right, n x 2 in float64, with the model as it stands."""
    model.module.eval()
    pieces = []
    for start in range(0, len(targets), EVALUATION_BATCH):
        chosen = slice(start, start + EVALUATION_BATCH)
        outputs = answers(model, inputs[chosen])
        right = outputs.argmax(dim=-1) == targets[chosen]
        pieces.append(torch.stack([sample_losses(outputs, targets[chosen], loss).double(), right.double()], dim=1))
    return torch.cat(pieces) if pieces else torch.zeros(0, 2, dtype=torch.float64)


def answers(model: FlatModule, inputs: torch.Tensor) -> torch.Tensor:
    """The module's outputs. One that may write to what it is given has a copy: samples are kept between rounds."""
    outputs: torch.Tensor = model.module(inputs if leaves_inputs(model.module) else inputs.clone())
    return outputs


def summaries(measured: torch.Tensor, counts: Sequence[int]) -> list[Measured | None]:
    """The mean of each client's samples, which lie one client after the other; None for a client without any."""
    if len(counts) > 1 and counts[0] and min(counts) == max(counts):
        means = measured.view(len(counts), counts[0], 2).mean(dim=1).tolist()
    else:
        means = [scores.mean(dim=0).tolist() for scores in torch.split(measured, list(counts))]
    return [Measured(*mean) if count else None for mean, count in zip(means, counts, strict=True)]
