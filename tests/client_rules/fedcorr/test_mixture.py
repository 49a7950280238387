"""Two components, and who is of the upper one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adafed.client_rules.fedcorr.mixture import upper


def test_two_heaps_are_told_apart() -> None:
    random = np.random.default_rng(0)
    values = np.r_[random.normal(1, 0.1, 30), random.normal(3, 0.2, 12)]
    np.testing.assert_array_equal(upper(values, seed=0), np.arange(42) >= 30)


@pytest.mark.parametrize("values", [[], [1.0], [2.0, 2.0, 2.0], [1.0, np.nan], [1.0, np.inf, 2.0]])
def test_where_there_are_not_two_values_nobody_is(values: list[float]) -> None:
    assert not upper(np.array(values), seed=0).any()


@given(st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=40), st.integers(0, 2**63 - 1))
def test_any_values_are_divided_the_same_way_twice(values: list[float], seed: int) -> None:
    found = upper(np.array(values), seed=seed)
    assert found.shape == (len(values),)
    np.testing.assert_array_equal(found, upper(np.array(values), seed=seed))
