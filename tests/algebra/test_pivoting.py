"""The simplex point over many rows: exact whatever the first guess, and the point that few rows' solver finds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adafed.algebra import hulls
from adafed.algebra.hulls import simplex_point
from adafed.algebra.pivoting import pivoted_point

Array = np.ndarray[Any, Any]


def problem(count: int, length: int, seed: int, spread: float = 1.0) -> tuple[Array, Array]:
    """Updates of ten kinds of clients, of very different lengths, and w = loss^2."""
    random = np.random.default_rng(seed)
    kinds = random.normal(size=(10, length))
    rows = 0.3 + random.normal(size=(count, length)) + kinds[random.integers(0, 10, count)]
    rows *= np.exp(spread * random.normal(size=(count, 1)))
    return rows @ rows.T, random.uniform(0.3, 3.0, count) ** 2


def certified(matrix: Array, weights: Array, found: Array) -> None:
    """y >= 0, w . y = 1, g_k . d >= w_k ||d||^2 with equality on the support: no other point of the hull is shorter."""
    squared = float(found @ matrix @ found)
    assert (found >= 0).all()
    assert weights @ found == pytest.approx(1.0, abs=1e-12)
    excess = (matrix @ found) / squared - weights
    assert (excess >= -1e-9 * weights).all()
    assert np.abs(excess[found > 0]).max() <= 1e-9 * weights.max()


@given(st.integers(65, 160), st.integers(20, 400), st.integers(0, 99))
@settings(max_examples=25, deadline=None)
def test_the_point_has_its_certificate(count: int, length: int, seed: int) -> None:
    if length > count:  # otherwise 0 may be in the hull, and the length of the point be rounding
        matrix, weights = problem(count, length, seed)
        certified(matrix, weights, simplex_point(matrix, weights))


def test_it_is_the_point_that_few_rows_get(monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(5):
        matrix, weights = problem(120, 300, seed)
        found = simplex_point(matrix, weights)
        monkeypatch.setattr(hulls, "MANY", 10**6)
        assert np.allclose(simplex_point(matrix, weights), found, rtol=1e-9, atol=1e-12 * found.max())
        monkeypatch.undo()


def test_the_guess_changes_nothing() -> None:
    matrix, weights = problem(200, 500, 3)
    found = simplex_point(matrix, weights)
    random = np.random.default_rng(0)
    for guess in (found, np.ones(200), np.zeros(200), (random.random(200) < 0.3).astype(float)):
        assert np.array_equal(simplex_point(matrix, weights, guess), found)


def test_copies_and_opposites() -> None:
    """A singular matrix: many copies of a few rows, and 0 in the hull."""
    random = np.random.default_rng(2)
    rows = random.normal(size=(5, 40)) + 0.5
    many = rows[random.integers(0, 5, 100)]
    matrix, weights = many @ many.T, np.ones(100)
    found = simplex_point(matrix, weights)
    least = simplex_point(rows @ rows.T, np.ones(5))
    assert found @ matrix @ found == pytest.approx(least @ (rows @ rows.T) @ least, rel=1e-6)
    both = np.vstack([many, -many])
    found = simplex_point(both @ both.T, np.ones(200))
    assert found @ (both @ both.T) @ found <= 1e-9 * np.trace(both @ both.T) / 200


def test_a_matrix_that_is_none_is_told() -> None:
    assert pivoted_point(-np.eye(3), np.ones(3)) is None
