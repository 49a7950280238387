"""FedGini's progressive weights."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import adafed


def weights(losses: list[float], **options: float) -> np.ndarray:
    updates = torch.eye(len(losses), dtype=torch.float64)
    return adafed.aggregate(adafed.rule("fedgini", **options), updates, losses=losses).coefficients


def test_by_hand() -> None:
    """Ranks 2, 0, 1 of three: r (r + 1) is 6, 0, 2, of 8 in all."""
    np.testing.assert_allclose(weights([3.0, 1.0, 2.0], epsilon=0.0), [6 / 8, 0.0, 2 / 8])
    np.testing.assert_allclose(weights([3.0, 1.0, 2.0]), 1 / 6 + np.array([6, 0, 2]) / 16)


def test_epsilon_1_is_the_plain_average() -> None:
    np.testing.assert_allclose(weights([3.0, 1.0, 2.0], epsilon=1.0), [1 / 3] * 3)


@pytest.mark.parametrize("count", [2, 5, 40])
@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0])
def test_the_weights_sum_to_one_and_grow_with_the_loss(count: int, epsilon: float) -> None:
    losses = np.random.default_rng(count).uniform(0, 3, count)
    found = weights(losses.tolist(), epsilon=epsilon)
    assert found.sum() == pytest.approx(1.0)
    assert (np.diff(found[np.argsort(losses)]) >= 0).all()


def test_a_mistake_is_told_in_a_sentence() -> None:
    with pytest.raises(adafed.AdafedError, match=r"^rule\.epsilon is 1\.5; it must be between 0 and 1$"):
        adafed.rule("fedgini", epsilon=1.5)


def test_ids_that_are_one_number_are_still_two_clients() -> None:
    """Equal losses are ranked by id, whatever the order of arrival."""
    updates = torch.eye(3, dtype=torch.float64)

    def by_client(names: list[str]) -> dict[str, float]:
        rule = adafed.rule("fedgini", epsilon=0.0)
        found = adafed.aggregate(rule, updates, losses=[1.0, 1.0, 2.0], clients=names)
        return dict(zip(names, found.coefficients.tolist(), strict=True))

    assert by_client(["1", "01", "2"]) == by_client(["01", "1", "2"])
