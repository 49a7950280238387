"""Products of new rows with kept ones: they are those of the whole Gram matrix."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from adafed.algebra.blocks import walking_with
from adafed.algebra.cross import cross
from adafed.algebra.gram import gram
from adafed.algebra.rows import Rows


@pytest.mark.parametrize(("count", "kept", "length"), [(1, 1, 1), (3, 7, 50), (10, 90, 70_000), (2, 300, 9_001)])
def test_a_part_of_the_gram_matrix(count: int, kept: int, length: int) -> None:
    rows = torch.from_numpy(np.random.default_rng(1).normal(size=(count + kept, length)).astype(np.float32))
    whole = gram(Rows(rows), precise=True)
    found = cross(Rows(rows[:count]), Rows(rows[count:]))
    lengths = np.sqrt(np.diag(whole))
    assert (np.abs(found - whole[:count, count:]) <= 2.0**-21 * lengths[:count, None] * lengths[count:]).all()
    exact = cross(Rows(rows[:count]), Rows(rows[count:]), precise=True)
    assert np.allclose(exact, whole[:count, count:], rtol=0, atol=1e-12 * lengths.max() ** 2)


def test_threads_change_no_bit() -> None:
    rows = torch.randn(30, 300_000)
    one, other = Rows(rows[:5]), Rows(rows[5:])
    found = cross(one, other)
    with walking_with(2):
        assert np.array_equal(cross(one, other), found)
    assert np.array_equal(cross(Rows(list(rows[:5])), Rows(list(rows[5:]))), found)


def test_nobody_is_kept() -> None:
    assert cross(Rows(torch.ones(3, 4)), Rows(torch.ones(2, 4)).select([])).shape == (3, 0)
