"""How many training samples of each label every client holds, where that is known without reading its inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from adafed.data.base import Federation
from adafed.data.noise import NoisyFederation

Counts = dict[str, dict[str, int]]


def label_counts(federation: Federation) -> Counts | None:
    """By client and label; None for federations that make or read a client whole, or not at all."""
    labels = _labels(federation)
    return None if labels is None else {client: _counted(labels(k)) for k, client in enumerate(federation.ids)}


def _labels(federation: Federation) -> Callable[[int], npt.NDArray[np.int64]] | None:
    if isinstance(federation, NoisyFederation):
        right = _labels(federation.federation)
        return None if right is None else lambda k: federation.given_labels(k, right(k))
    found: Any = getattr(federation, "train_labels", None)
    return found if callable(found) else None


def _counted(labels: npt.NDArray[np.int64]) -> dict[str, int]:
    values, counts = np.unique(labels, return_counts=True)
    return {str(value): int(count) for value, count in zip(values.tolist(), counts.tolist(), strict=True)}
