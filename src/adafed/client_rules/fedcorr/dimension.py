"""The local intrinsic dimension (LID) of points among their neighbours, which is larger where labels are wrong."""

from __future__ import annotations

import torch

EPSILON = 1e-6  # of the authors' code, at both places
ROWS = 1024  # distances from so many points at a time


def local_dimensions(points: torch.Tensor, neighbours: int) -> torch.Tensor:
    """For every point -k / sum_i log(r_i / r_k), where r_1 to r_k are the distances to its k nearest others.

    A client with no more than k samples has k = n - 1 of them; with fewer than three samples k is 1 and the formula
    0 / 0, so that they have no dimension: NaN. A point that others coincide with has 0, the limit of the formula.
    """
    count = len(points)
    near = min(neighbours, count - 1)
    if near < 2:
        return torch.full((count,), torch.nan, dtype=torch.float64)
    points = points.to(torch.float64)
    found = []
    for start in range(0, count, ROWS):
        # By differences: from inner products, points that coincide would be a little apart.
        away = torch.cdist(points[start : start + ROWS], points, compute_mode="donot_use_mm_for_euclid_dist")
        closest = away.topk(near + 1, dim=1, largest=False, sorted=True).values[:, 1:]  # the first is the point itself
        logarithms = torch.log(closest / (closest[:, -1:] + EPSILON)).sum(dim=1)
        found.append(-near / (logarithms + EPSILON))
    return torch.cat(found)
