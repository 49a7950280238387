"""The projection onto the simplex: hand-checked numbers, and the optimality conditions that determine it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from adafed.algebra.simplex import project_to_simplex


@pytest.mark.parametrize("case", range(4))
def test_oracles(oracles: dict[str, Any], case: int) -> None:
    expected = oracles["simplex_projection"][case]
    np.testing.assert_allclose(project_to_simplex(np.array(expected["y"])), expected["x"], rtol=0, atol=1e-12)


@given(arrays.arrays(np.float64, st.integers(1, 30), elements=st.floats(-1e300, 1e300)))
def test_lies_in_the_simplex_and_keeps_the_order(point: np.ndarray[Any, Any]) -> None:
    projected = project_to_simplex(point)
    assert (projected >= 0).all()
    assert abs(projected.sum() - 1) < 1e-12
    assert (np.diff(projected[np.argsort(point)]) >= -1e-12).all()


@given(arrays.arrays(np.float64, st.integers(1, 30), elements=st.floats(-3, 3)), st.floats(-100, 100))
def test_one_threshold_explains_every_entry(point: np.ndarray[Any, Any], shift: float) -> None:
    projected = project_to_simplex(point)
    support = projected > 0
    thresholds = (point - projected)[support]
    assert np.ptp(thresholds) < 1e-12
    assert (point[~support] <= thresholds.mean() + 1e-12).all()
    np.testing.assert_allclose(project_to_simplex(point + shift), projected, atol=1e-12)


def test_points_of_the_simplex_stay() -> None:
    for point in ([1.0], [0.25, 0.75], [0.0, 1.0, 0.0], [1 / 3] * 3):
        np.testing.assert_allclose(project_to_simplex(np.array(point)), point, atol=1e-15)


def test_extremes_go_to_a_vertex() -> None:
    assert project_to_simplex(np.array([1.7e308, -1.7e308, 0.0])).tolist() == [1.0, 0.0, 0.0]
    np.testing.assert_allclose(project_to_simplex(np.array([1e300, 1e300, -1e300])), [0.5, 0.5, 0.0])
