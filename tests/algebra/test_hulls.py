"""Shortest vectors in hulls: their optimality conditions, and agreement with a general-purpose solver."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import clarabel
import numpy as np
import pytest
import scipy.sparse

from adafed.algebra.hulls import affine_point, boxed_simplex_point, simplex_point

Array = np.ndarray[Any, Any]


def interior_point(gram: Array, weights: Array, lower: Array | None = None, upper: Array | None = None) -> Array:
    """argmin y.M.y over weights . y = 1 and the bounds; written apart from the code under test."""
    count = len(gram)
    lower = np.zeros(count) if lower is None else lower
    rows, bounds = [weights[None, :], -np.eye(count)], [[1.0], -lower]
    if upper is not None:
        rows.append(np.eye(count))
        bounds.append(upper)
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-13
    cones = [clarabel.ZeroConeT(1), clarabel.NonnegativeConeT(sum(map(len, bounds)) - 1)]
    solver = clarabel.DefaultSolver(
        scipy.sparse.csc_matrix(np.triu(2 * gram)),
        np.zeros(count),
        scipy.sparse.csc_matrix(np.vstack(rows)),
        np.concatenate(bounds),
        cones,
        settings,
    )
    return np.array(solver.solve().x)


def families() -> Iterator[tuple[str, Array, Array]]:
    """Named updates and weights, from harmless to hostile."""
    generator = np.random.default_rng(0)
    for index in range(12):
        count = int(generator.integers(2, 30))
        spread = 10.0 ** generator.uniform(-3, 3, (count, 1))
        common = generator.normal(size=50) * (index % 4)
        updates = (generator.normal(size=(count, 50)) + common) * (spread if index % 2 else 1.0)
        yield f"random {index}", updates, generator.uniform(0.1, 3.0, count) ** (index % 3)
    for count in (3, 10, 40):
        yield (
            f"more clients than dimensions {count}",
            generator.normal(size=(count, 2)) + np.array([1.5, 0.0]),
            np.ones(count),
        )
        yield f"Pareto-stationary {count}", generator.normal(size=(count, 2)), np.ones(count)
    base = generator.normal(size=(4, 30))
    yield "duplicates", base[[0, 0, 1, 1, 2, 3]], np.ones(6)
    yield "duplicates of different weight", base[[0, 0, 1, 2]], np.array([1.0, 2.0, 1.0, 1.0])
    yield "parallel", np.stack([base[0], 1.5 * base[0], base[1]]), np.ones(3)
    yield "opposite", np.stack([base[0], -base[0], base[1]]), np.ones(3)
    yield "nearly parallel", base[0] + 1e-6 * generator.normal(size=(8, 30)), generator.uniform(0.5, 2.0, 8)
    yield "parallel in float32", (base[0] * np.linspace(1, 2, 5)[:, None]).astype(np.float32).astype(float), np.ones(5)
    yield "one without weight", base, np.array([0.0, 1.0, 1.0, 1.0])
    yield "one with weight", base, np.array([0.0, 0.0, 0.0, 1.0])
    yield "agreeing, one with weight", base + 3, np.array([0.0, 0.0, 0.0, 1.0])
    yield "weights from 1e-300", base, np.array([1e-300, 1e-100, 1e-10, 1.0])
    yield "agreeing, weights from 1e-300", base + 3, np.array([1e-300, 1e-100, 1e-10, 1.0])
    yield "lengths from 1e-9", base * np.array([[1e-9], [1e-5], [1e-2], [1.0]]), np.ones(4)
    yield "agreeing, lengths from 1e-9", (base + 3) * np.array([[1e-9], [1e-5], [1e-2], [1.0]]), np.ones(4)
    yield "short with weight 1e-12", base * np.array([[1e-8], [1], [1], [1]]), np.array([1e-12, 1, 1, 1])
    yield "long with weight 1", base * np.array([[1e8], [1], [1], [1]]), np.array([1.0, 1e-9, 1e-9, 1e-9])
    opposed = np.stack([base[0], -1.1 * base[0], base[1]]).astype(np.float32).astype(float)
    yield "opposed to float32's rounding, without weight", opposed, np.array([0.0, 1e-300, 1.0])
    yield "opposed to float32's rounding", opposed, np.ones(3)
    yield "one", base[:1], np.array([0.3])


FAMILIES = list(families())
ALL = pytest.mark.parametrize(("updates", "weights"), [f[1:] for f in FAMILIES], ids=[f[0] for f in FAMILIES])


@ALL
def test_simplex_point_is_optimal(updates: Array, weights: Array) -> None:
    """y >= 0, w . y = 1 and g_k . d >= w_k ||d||^2 with equality on the support, all but for rounding."""
    point = simplex_point(updates @ updates.T, weights)
    assert np.isfinite(point).all()
    assert (point >= 0).all()
    assert weights @ point == pytest.approx(1.0, rel=1e-12)
    direction, lengths = point @ updates, np.linalg.norm(updates, axis=1)
    assert np.linalg.norm(direction) <= (1 + 1e-9) * (lengths[weights > 0] / weights[weights > 0]).min()
    # Rounding of a rate: of the terms that are added up to make it.
    rounding = 1e-13 * lengths * (point @ lengths)
    excess = updates @ direction - weights * (direction @ direction)
    assert (excess >= -rounding).all()
    assert (np.abs(excess) <= rounding)[point > 0].all()


@ALL
def test_simplex_point_agrees_with_an_interior_point_method(updates: Array, weights: Array) -> None:
    """On unit updates, where the solver's absolute tolerances mean something; by length, as y need not be unique."""
    lengths = np.linalg.norm(updates, axis=1)
    ratios = weights / lengths / (weights / lengths).max()
    unit = updates / lengths[:, None]
    gram = unit @ unit.T
    mine, theirs = simplex_point(gram, ratios), np.maximum(interior_point(gram, ratios), 0.0)
    theirs /= ratios @ theirs
    assert mine @ gram @ mine <= theirs @ gram @ theirs + 1e-13
    np.testing.assert_allclose(mine @ unit, theirs @ unit, rtol=0, atol=3e-6)
    direct = simplex_point(updates @ updates.T, weights)
    np.testing.assert_allclose(direct @ updates * (weights / lengths).max(), mine @ unit, rtol=0, atol=1e-7)


@ALL
def test_affine_point_has_its_rates_or_says_so(updates: Array, weights: Array) -> None:
    gram = updates @ updates.T
    point = affine_point(gram, weights)
    lengths = np.linalg.norm(updates, axis=1)
    rank = np.linalg.matrix_rank(updates / lengths[:, None], tol=1e-7)
    if point is None:
        assert rank < len(updates)
        return
    assert weights @ point == pytest.approx(1.0, rel=1e-9)
    direction = point @ updates
    rounding = 1e-14 * lengths * (np.abs(point) @ lengths) * len(updates)
    excess = np.abs(updates @ direction - weights * (direction @ direction))
    assert (excess <= 1e-7 * weights * (direction @ direction) + rounding).all()
    assert np.linalg.norm(direction) <= (1 + 1e-6) * (lengths[weights > 0] / weights[weights > 0]).min()


@ALL
def test_simplex_point_is_no_shorter_than_the_affine_one(updates: Array, weights: Array) -> None:
    gram = updates @ updates.T
    affine, simplex = affine_point(gram, weights), simplex_point(gram, weights)
    if affine is not None:
        longer = simplex @ gram @ simplex
        assert affine @ gram @ affine <= longer * (1 + 1e-9)
        if (affine >= 0).all():
            assert affine @ gram @ affine == pytest.approx(longer, rel=1e-6)


def test_simplex_point_when_least_squares_gives_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interior-point fallback meets the same optimality conditions, to its own tolerance."""

    def gives_up(*_: object, **__: object) -> None:
        raise RuntimeError("Maximum number of iterations reached.")

    generator = np.random.default_rng(3)
    for common in (0.0, 1.0):
        updates = generator.normal(size=(12, 20)) + common
        weights = generator.uniform(0.5, 2.0, 12)
        expected = simplex_point(updates @ updates.T, weights)
        with monkeypatch.context() as patch:
            patch.setattr("scipy.optimize.nnls", gives_up)
            found = simplex_point(updates @ updates.T, weights)
        assert (found >= 0).all()
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)


def test_dependent_updates_with_equal_rates_have_the_shortest_direction() -> None:
    generator = np.random.default_rng(5)
    base, weights = generator.normal(size=(3, 40)), np.array([1.0, 2.0, 0.5])
    copies = [0, 0, 1, 2, 2, 2]
    point = affine_point(base[copies] @ base[copies].T, weights[copies])
    exact = np.linalg.pinv(base) @ weights  # the shortest x with g_k . x = w_k, and d = x / ||x||^2
    assert point is not None
    np.testing.assert_allclose(point @ base[copies], exact / (exact @ exact), rtol=1e-10)


def test_disagreement_is_seen_beside_a_short_update() -> None:
    """Parallel updates of different length have no common d; a third, 1e8 times shorter, must not hide that."""
    updates = np.array([[1.0, 0.0], [1.5, 0.0], [0.0, 1e-8]])
    assert affine_point(updates @ updates.T, np.ones(3)) is None
    assert affine_point(updates[::2] @ updates[::2].T, np.ones(2)) is not None


def test_disagreement_is_seen_between_small_weights() -> None:
    updates = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    assert affine_point(updates @ updates.T, np.array([1e-10, 2e-10, 1.0])) is None
    assert affine_point(updates @ updates.T, np.array([1e-10, 1e-10, 1.0])) is not None


def boxes() -> Iterator[tuple[str, Array, Array, Array]]:
    generator = np.random.default_rng(7)
    for index in range(16):
        count = int(generator.integers(2, 25))
        updates = generator.normal(size=(count, 30)) + generator.normal(size=30) * (index % 3)
        updates /= np.linalg.norm(updates, axis=1)[:, None]
        prior = generator.dirichlet(np.ones(count)) if index % 2 else np.full(count, 1 / count)
        epsilon = [0.5, 0.1, 0.01, 1e-3][index % 4]
        yield f"random {index}", updates, np.maximum(prior - epsilon, 0), np.minimum(prior + epsilon, 1)
    base = updates[:2]
    quarter = np.full(4, 0.25)
    yield "parallel", base[[0, 0, 0, 0]], quarter - 0.1, quarter + 0.1
    yield "duplicates", base[[0, 0, 1, 1]], quarter - 0.1, quarter + 0.1
    yield "opposite", np.stack([base[0], -base[0], base[1], -base[1]]), quarter - 0.2, quarter + 0.2
    yield "no room", updates, np.full(len(updates), 1 / len(updates)), np.full(len(updates), 1 / len(updates))
    tiny = 1e-10
    yield (
        "hardly room",
        updates,
        1 / len(updates) - np.full(len(updates), tiny),
        np.full(len(updates), 1 / len(updates) + tiny),
    )
    yield "one", base[:1], np.array([0.5]), np.array([1.0])


BOXES = list(boxes())


@pytest.mark.parametrize(("updates", "lower", "upper"), [b[1:] for b in BOXES], ids=[b[0] for b in BOXES])
def test_boxed_simplex_point_is_optimal(updates: Array, lower: Array, upper: Array) -> None:
    """One multiplier: the slope is equal on the free entries, no less at lower bounds and no more at upper ones."""
    gram = updates @ updates.T
    point = boxed_simplex_point(gram, lower, upper)
    assert point.sum() == pytest.approx(1.0, abs=1e-12)
    assert (point >= lower - 1e-12).all()
    assert (point <= upper + 1e-12).all()
    slope = gram @ point
    can_fall, can_rise = point > lower + 1e-7, point < upper - 1e-7
    if can_fall.any() and can_rise.any():  # moving weight from j to k must not help
        assert slope[can_fall].max() <= slope[can_rise].min() + 1e-7
    theirs = interior_point(gram, np.ones(len(gram)), lower, upper)
    np.testing.assert_allclose(point @ updates, theirs @ updates, rtol=0, atol=1e-6)
    assert point @ gram @ point <= theirs @ gram @ theirs + 1e-11
    if np.linalg.matrix_rank(updates) == len(updates) and len(updates) < 10:
        np.testing.assert_allclose(point, theirs, rtol=0, atol=1e-7)


def test_rounding_between_opposite_updates_is_not_amplified() -> None:
    """Opposite updates without weight could cancel at any length: what rounding leaves of them must not become d."""
    generator = np.random.default_rng(0)
    for _ in range(20):
        base = generator.normal(size=(2, 200))
        updates = np.stack([base[0], -1.1 * base[0], base[1]]).astype(np.float32).astype(float)
        direction = simplex_point(updates @ updates.T, np.array([0.0, 1e-300, 1.0])) @ updates
        assert np.linalg.norm(direction) <= (1 + 1e-9) * np.linalg.norm(updates[2])
        assert updates[2] @ direction >= (1 - 1e-6) * direction @ direction


def test_the_shortest_vector_leans_to_the_shortest_of_two_updates_and_bisects_equal_ones() -> None:
    """Of two updates, and of all that have a part in it; an update that has none may lie along it and be longer."""

    def cosines(updates: Array) -> tuple[Array, Array]:
        point = simplex_point(updates @ updates.T, np.ones(len(updates)))
        direction = point @ updates
        return point, updates @ direction / np.linalg.norm(updates, axis=1) / np.linalg.norm(direction)

    generator = np.random.default_rng(0)
    for _ in range(50):
        updates = generator.normal(size=(2, 3))
        lengths = np.linalg.norm(updates, axis=1)
        _, leaning = cosines(updates)
        assert (leaning[0] > leaning[1]) == (lengths[0] < lengths[1])
        _, leaning = cosines(updates / lengths[:, None])
        assert leaning[0] == pytest.approx(leaning[1])
    point, leaning = cosines(np.array([[2.0, 1.0], [-2.0, 1.0], [0.0, 3.0]]))
    assert point == pytest.approx([0.5, 0.5, 0.0], abs=1e-12)
    assert leaning == pytest.approx([5**-0.5, 5**-0.5, 1.0])
