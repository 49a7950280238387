"""Euclidean projection onto the probability simplex, exact by sorting."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float64]


def project_to_simplex(point: Vector) -> Vector:
    """The nearest x with x >= 0 and sum x = 1: x = max(point - threshold, 0) for the one threshold that sums to 1."""
    # Moving all entries by a constant moves the threshold with it; relative to the largest, nothing can overflow.
    shifted = point - point.max()
    descending = np.sort(shifted)[::-1]
    thresholds = (np.cumsum(descending) - 1.0) / np.arange(1, len(point) + 1)
    support = np.nonzero(descending > thresholds)[0][-1]
    projected: Vector = np.maximum(shifted - thresholds[support], 0.0)
    return projected / projected.sum()
