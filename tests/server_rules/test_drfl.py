"""DRFL's weights, by hand and at their ends."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import adafed

UPDATES = torch.eye(3, dtype=torch.float64)


def weights(q: float, losses: list[float]) -> np.ndarray:
    return adafed.aggregate(adafed.rule("drfl", q=q), UPDATES, losses=losses, sizes=[10, 30, 60]).coefficients


def test_by_hand() -> None:
    np.testing.assert_allclose(weights(1.0, [2.0, 1.0, 0.5]), [0.25, 0.375, 0.375])
    np.testing.assert_allclose(weights(2.0, [2.0, 1.0, 0.5]), np.array([40, 30, 15]) / 85)


def test_q_0_is_fedavg_and_so_are_equal_losses() -> None:
    fedavg = adafed.aggregate(adafed.rule("fedavg"), UPDATES, sizes=[10, 30, 60]).coefficients
    np.testing.assert_allclose(weights(0.0, [2.0, 1.0, 0.5]), fedavg)
    np.testing.assert_allclose(weights(5.0, [0.3, 0.3, 0.3]), fedavg)
    np.testing.assert_allclose(weights(5.0, [0.0, 0.0, 0.0]), fedavg)


def test_the_weights_are_those_of_qffl_without_its_step() -> None:
    """With equal sample counts the two directions are parallel."""
    losses = [2.0, 1.0, 0.5]
    own = adafed.aggregate(adafed.rule("drfl", q=3.0), UPDATES, losses=losses, sizes=[4, 4, 4]).coefficients
    qffl = adafed.aggregate(adafed.rule("qffl", q=3.0, lr=0.1), UPDATES, losses=losses).coefficients
    np.testing.assert_allclose(own, qffl / qffl.sum())


def test_a_mistake_is_told_in_a_sentence() -> None:
    with pytest.raises(adafed.AdafedError, match=r"^rule\.q is -1\.0; it must be a finite number at least 0$"):
        adafed.rule("drfl", q=-1)
