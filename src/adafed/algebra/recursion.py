"""The paper's own way to d: the Gram-Schmidt recursion of equations (5)-(6) and the weights of equation (14).

Kept as the reference that tests and benchmarks compare the closed form with. It divides by |f_k|^gamma minus a sum of
projections, which can be 0 for harmless inputs depending on the order of the clients, and it takes 2 d K^2 operations
with K vectors stored; use `adafed.aggregate` for anything else.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch


def orthogonalised(
    updates: torch.Tensor, losses: Sequence[float], gamma: float
) -> tuple[list[torch.Tensor], torch.Tensor]:
    """The orthogonal vectors of equations (5)-(6), from the K x d updates, and lambda* of equation (14); equation (5)'s
    |f_k| is read as |f_1|."""
    weights = [abs(float(loss)) ** gamma for loss in losses]
    orthogonal: list[torch.Tensor] = []
    squares: list[torch.Tensor] = []
    for update, weight in zip(updates, weights, strict=True):
        projections = [update @ other / square for other, square in zip(orthogonal, squares, strict=True)]
        vector, divisor = update.clone(), torch.as_tensor(weight, dtype=updates.dtype)
        for projection, other in zip(projections, orthogonal, strict=True):
            vector -= projection * other
            divisor = divisor - projection
        orthogonal.append(vector / divisor)
        squares.append(orthogonal[-1] @ orthogonal[-1])
    inverse = torch.stack([1.0 / square for square in squares])
    return orthogonal, inverse / inverse.sum()


def gram_schmidt_direction(updates: torch.Tensor, losses: Sequence[float], gamma: float) -> torch.Tensor:
    """d as printed, from the K x d updates."""
    orthogonal, shares = orthogonalised(updates, losses, gamma)
    direction = torch.zeros_like(updates[0])
    for share, vector in zip(shares, orthogonal, strict=True):
        direction += share * vector
    return direction
