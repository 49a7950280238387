"""The length that comes with a weighted sum; the sum itself is tested beside the Gram matrix."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from adafed.algebra.blocks import walking_with
from adafed.algebra.rows import Rows
from adafed.algebra.weighted_sum import weighted_sum, weighted_sum_and_norm


def updates(count: int, length: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(count, length, generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("length", [1, 7, 8193, 300_001])
def test_the_norm_is_that_of_the_rounded_sum_in_float64(dtype: torch.dtype, length: int) -> None:
    found = weighted_sum_and_norm(Rows(updates(3, length, dtype)), [0.5, -1.0, 2.0])
    assert found.vector.dtype == dtype
    exact = math.sqrt(math.fsum(number * number for number in found.vector.double().tolist()))
    assert found.norm == pytest.approx(exact, rel=1e-14)
    assert torch.equal(found.vector, weighted_sum(Rows(updates(3, length, dtype)), [0.5, -1.0, 2.0]))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_the_norm_has_the_same_bits_for_every_layout_number_of_threads_and_budget(dtype: torch.dtype) -> None:
    matrix = updates(5, 700_001, dtype)
    norms = set()
    for kind in (matrix, [row.clone() for row in matrix], matrix.T.contiguous().T):
        for threads in (1, 2, 4):
            for budget in (0, 2**28):
                with walking_with(threads):
                    norms.add(weighted_sum_and_norm(Rows(kind), np.linspace(-1, 1, 5), memory_budget=budget).norm)
    assert len(norms) == 1


@pytest.mark.parametrize("precise", [False, True])
@pytest.mark.parametrize("scale", [1e-35, 1e-20, 1e18, 1e30])
def test_squares_beyond_float32(scale: float, precise: bool) -> None:
    rows = Rows(torch.tensor([[3.0, 0.0], [0.0, 4.0]]) * scale)
    assert weighted_sum_and_norm(rows, [1.0, 1.0], precise=precise).norm / scale == pytest.approx(5.0)


@pytest.mark.parametrize("scale", [1e-300, 1e-160, 1e160, 1e300])
def test_squares_beyond_float64(scale: float) -> None:
    rows = Rows(torch.tensor([[3.0, 0.0], [0.0, 4.0]], dtype=torch.float64) * scale)
    assert weighted_sum_and_norm(rows, [1.0, 1.0]).norm / scale == pytest.approx(5.0)


def test_nothing_has_no_length() -> None:
    assert weighted_sum_and_norm(Rows(torch.ones(2, 3)), [0.0, 0.0]).norm == 0.0
