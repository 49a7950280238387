"""Lengths, inner products and the mean's length, against plain float64 arithmetic."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from adafed.algebra.products import length, norms, rates
from adafed.algebra.rows import Rows


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-13), (torch.float32, 2e-6)])
@pytest.mark.parametrize("columns", [1, 7, 70_000])
def test_plain_numbers(dtype: torch.dtype, tolerance: float, columns: int) -> None:
    generator = torch.Generator().manual_seed(columns)
    updates = torch.randn(5, columns, generator=generator, dtype=dtype)
    direction = torch.randn(columns, generator=generator, dtype=dtype)
    found = rates(Rows(updates), direction)
    exact, target = updates.double().numpy(), direction.double().numpy()
    lengths = np.linalg.norm(exact, axis=1)
    np.testing.assert_allclose(norms(Rows(updates)), lengths, rtol=tolerance)
    allowed = tolerance * float(np.linalg.norm(target))
    np.testing.assert_allclose(found.rates / lengths, exact @ target / lengths, atol=allowed)
    assert found.mean_norm == pytest.approx(np.linalg.norm(exact.mean(axis=0)), rel=tolerance)
    assert length(direction) == pytest.approx(np.linalg.norm(target), rel=tolerance)


@pytest.mark.parametrize("scale", [1e-300, 1e-160, 1e-30, 1e30, 1e160, 1e300])
def test_squares_beyond_the_range_of_float64(scale: float) -> None:
    base = torch.tensor([[3.0, 4.0], [0.0, 0.0], [5.0, 12.0]], dtype=torch.float64)
    found = rates(Rows(base * scale), torch.tensor([1.0, -1.0], dtype=torch.float64))
    np.testing.assert_allclose(norms(Rows(base * scale)) / scale, [5.0, 0.0, 13.0], rtol=1e-14)
    np.testing.assert_allclose(found.rates / scale, [-1.0, 0.0, -7.0], rtol=1e-13)
    assert found.mean_norm / scale == pytest.approx(np.hypot(8, 16) / 3)
    assert length(base[0] * scale) / scale == pytest.approx(5.0)


def test_rows_of_very_different_size_keep_their_lengths() -> None:
    updates = torch.tensor([[3e-200, 4e-200], [3e200, 4e200]], dtype=torch.float64)
    np.testing.assert_allclose(norms(Rows(updates)), [5e-200, 5e200])


def test_lengths_beyond_float64_are_infinite_without_a_warning() -> None:
    updates = torch.full((2, 4), 1.5e308, dtype=torch.float64)
    assert np.isinf(norms(Rows(updates))).all()
    assert np.isinf(rates(Rows(updates), torch.ones(4, dtype=torch.float64)).mean_norm)


def test_layouts_agree_in_every_bit() -> None:
    updates = torch.randn(4, 40_000, generator=torch.Generator().manual_seed(1))
    direction = updates.mean(dim=0)
    layouts = [Rows(updates), Rows([row.clone() for row in updates]), Rows(updates.T.contiguous().T)]
    first, *others = ((norms(rows), rates(rows, direction)) for rows in layouts)
    for other in others:
        assert np.array_equal(first[0], other[0])
        assert np.array_equal(first[1].rates, other[1].rates)
        assert first[1].mean_norm == other[1].mean_norm


def test_length_of_nothing_is_zero() -> None:
    assert length(torch.zeros(3)) == 0.0
