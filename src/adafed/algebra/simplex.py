"""Euclidean projection onto the probability simplex, exact by sorting."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float64]


def project_to_simplex(point: Vector) -> Vector:
    """The nearest x with x >= 0 and sum x = 1: x = max(point - threshold, 0) for the one threshold that sums to 1."""
    # Moving all entries by a constant moves the threshold with it. Relative to the largest entry the threshold is at
    # least -1, so what lies below -2 gets 0 wherever it lies: cut there, nothing overflows and no digit is lost.
    with np.errstate(over="ignore"):
        shifted = np.maximum(point - point.max(), -2.0)
    descending = np.sort(shifted)[::-1]
    thresholds = (np.cumsum(descending) - 1.0) / np.arange(1, len(point) + 1)
    support = np.nonzero(descending > thresholds)[0][-1]
    projected: Vector = np.maximum(shifted - thresholds[support], 0.0)
    normalised: Vector = projected / projected.sum()
    return normalised
