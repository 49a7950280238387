"""The paper's recursion against the closed form: the same vector, but where the recursion divides by 0."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import adafed
from adafed.algebra.recursion import gram_schmidt_direction


@pytest.mark.parametrize("gamma", [0.0, 0.1, 1.0, 2.0])
@pytest.mark.parametrize("seed", range(5))
def test_equals_the_closed_form_in_any_order(gamma: float, seed: int) -> None:
    generator = np.random.default_rng(seed)
    count = int(generator.integers(2, 12))
    updates = torch.from_numpy(generator.normal(size=(count, int(generator.integers(count + 5, 300)))))
    losses = generator.uniform(0.3, 3.0, count)
    rule = adafed.rule("adafed", preset="paper", gamma=gamma)
    closed = adafed.aggregate(rule, updates, losses=losses).direction
    for _ in range(4):
        order = generator.permutation(count)
        printed = gram_schmidt_direction(updates[order], losses[order].tolist(), gamma)
        assert (printed - closed).norm() <= 1e-8 * closed.norm()


def test_printed_recursion_divides_zero_by_zero_where_the_closed_form_does_not() -> None:
    updates = torch.tensor([[1.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
    rule = adafed.rule("adafed", preset="paper")
    assert gram_schmidt_direction(updates, [1.0, 1.0], 1.0).isnan().any()
    assert gram_schmidt_direction(updates.flip(0), [1.0, 1.0], 1.0).tolist() == pytest.approx([1.0, 0.0])
    for order in ([0, 1], [1, 0]):
        closed = adafed.aggregate(rule, updates[order], losses=[1.0, 1.0])
        assert closed.direction.tolist() == pytest.approx([1.0, 0.0], abs=1e-15)
        assert closed.diagnostics.hull == "affine"


def test_a_single_update_is_divided_by_its_weight() -> None:
    update = torch.tensor([[3.0, 4.0]], dtype=torch.float64)
    assert gram_schmidt_direction(update, [2.0], 1.0).tolist() == [1.5, 2.0]


@pytest.mark.parametrize("seed", range(5))
def test_the_recursions_vectors_are_orthogonal_span_the_same_and_have_positive_weights(seed: int) -> None:
    """Equations (5), (6) and (14) written out: the weights come out positive without having been asked to."""
    generator = np.random.default_rng(seed)
    updates, losses = generator.normal(size=(5, 40)), generator.uniform(0.3, 3.0, 5)
    vectors: list[np.ndarray[Any, Any]] = []
    for update, loss in zip(updates, losses, strict=True):
        shares = [update @ other / (other @ other) for other in vectors]
        left = update - sum((share * other for share, other in zip(shares, vectors, strict=True)), np.zeros(40))
        vectors.append(left / (loss - sum(shares)))
    found = np.stack(vectors)
    products = found @ found.T
    lengths = np.sqrt(np.diag(products))
    np.testing.assert_allclose(products / np.outer(lengths, lengths), np.eye(5), atol=1e-9)
    assert np.linalg.matrix_rank(np.vstack([found, updates])) == 5
    weights = 1 / lengths**2 / (1 / lengths**2).sum()
    assert (weights > 0).all()
    printed = gram_schmidt_direction(torch.from_numpy(updates), losses.tolist(), 1.0).numpy()
    np.testing.assert_allclose(weights @ found, printed, rtol=1e-9)
