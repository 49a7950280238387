"""Shortest vectors in hulls of the updates, from their Gram matrix M alone: a vector sum y_k g_k has length^2 y.M.y.

Three hulls: affine (a linear system), the simplex scaled by w (non-negative least squares), and the simplex in a box
(a quadratic programme). All work on M with unit diagonal, which removes the updates' lengths from the conditioning.
"""

from __future__ import annotations

from typing import NamedTuple

import clarabel
import numpy as np
import numpy.typing as npt
import scipy.linalg
import scipy.sparse

from adafed.algebra.pivoting import pivoted_point

Vector = npt.NDArray[np.float64]
Matrix = npt.NDArray[np.float64]

MANY = 64  # rows from which pivoting finds the simplex point sooner than a factor of all of them would
CLEARLY_FULL_RANK = 1e-9  # a reciprocal condition number from which no look at the eigenvalues is needed
RANK_TOLERANCE = 2e-15  # times K: eigenvalues of the unit-diagonal Gram below this are rounding of the inner products
CONSISTENCY_TOLERANCE = 1e-8  # of w_k: how far g_k . d may be from proportional to it


class _Unit(NamedTuple):
    """M with unit diagonal, and the lengths it was divided by."""

    gram: Matrix
    lengths: Vector


def _unit(gram: Matrix) -> _Unit:
    lengths = np.sqrt(np.diag(gram))
    unit = gram / lengths[:, None] / lengths[None, :]
    return _Unit((unit + unit.T) / 2.0, lengths)


def _relative(weights: Vector, lengths: Vector) -> Vector:
    """w_k / ||g_k||, the right-hand side that goes with the unit-diagonal Gram, with largest entry 1."""
    ratios = weights / lengths * lengths.min()
    relative: Vector = ratios / ratios.max()
    return relative


def affine_point(gram: Matrix, weights: Vector) -> Vector | None:
    """y with M y proportional to w and w . y = 1: the shortest vector in the affine hull of the g_k / w_k.

    Where M is singular but M y = w has solutions, all of them give the same vector. None where it has no solution: then
    no vector has g_k . d proportional to w_k for all k (two parallel updates of different length, K > d).
    """
    unit, lengths = _unit(gram)
    target = _relative(weights, lengths)
    solution = _solved(unit, target, at_least=CLEARLY_FULL_RANK)
    if solution is None:
        eigenvalues, vectors = np.linalg.eigh(unit)
        kept = eigenvalues > RANK_TOLERANCE * len(unit) * max(eigenvalues[-1], 1.0)
        solution = _solved(unit, target) if kept.all() else None
    if solution is None:
        basis = vectors[:, kept]
        solution = basis @ ((basis.T @ target) / eigenvalues[kept])
        # Client by client: where one w_k / ||g_k|| is large, the others' would vanish beside a common tolerance.
        rounding = 64 * np.finfo(float).eps * len(unit) * np.abs(solution).max()
        allowed = CONSISTENCY_TOLERANCE * target + min(rounding, CONSISTENCY_TOLERANCE)
        if (np.abs(unit @ solution - target) > allowed).any():
            return None
    if not target @ solution > 0.0:  # it is w.M^-1.w: rounding alone, so nothing can be said of the direction
        return None
    return _normalised(solution / (lengths / lengths.min()), weights)


def simplex_point(gram: Matrix, weights: Vector, start: Vector | None = None) -> Vector:
    """argmin y.M.y over y >= 0 with w . y = 1. `start`, a guess at y, may save time; only its support is looked at.

    One non-negative least squares: for R.T R = M the y that minimises ||R y||^2 + (w . y - 1)^2 has the right direction
    for any weight of the second term, since its value grows with ||R y||^2 / (w . y)^2 alone.
    """
    unit, lengths = _unit(gram)
    target = _relative(weights, lengths)
    if len(unit) == 1:
        return 1.0 / weights
    if len(unit) > MANY:
        # Lifted as below, by a little more, so that no eigenvalue has to be known.
        support = None if start is None else start > 0.0
        found = pivoted_point(unit, target, support, ridge=len(unit) * RANK_TOLERANCE)
        if found is not None:
            found = _polished(unit, target, found)
            return _normalised(found / (lengths / lengths.min()), weights)
    whole = affine_point(gram, weights)
    if whole is not None and (whole >= 0.0).all():  # the same point, and much the cheaper
        return whole
    eigenvalues, vectors = np.linalg.eigh(unit)
    # Below this lies rounding. Left there, opposite updates with small w would get huge y for a gain that is none;
    # lifted, y.M.y bounds the true length, and of all y that give the same vector the shortest is taken.
    smallest = RANK_TOLERANCE * max(eigenvalues[-1], 1.0)
    if eigenvalues[0] < smallest:
        eigenvalues = np.maximum(eigenvalues, smallest)
        unit = (vectors * eigenvalues) @ vectors.T
    from scipy.optimize import nnls  # a tenth of a worker's start, which has no use for it

    factor = np.sqrt(eigenvalues)[:, None] * vectors.T
    system = np.vstack([factor, target])
    right = np.zeros(len(system))
    right[-1] = 1.0
    try:
        solution, _ = nnls(system, right, maxiter=30 * len(unit))
    except RuntimeError:  # it cycled: rare, on nearly equal columns
        solution = _quadratic_programme(unit, target, np.zeros(len(unit)), np.full(len(unit), np.inf))
        solution = np.maximum(solution, 0.0)
    solution = _polished(unit, target, solution)
    return _normalised(solution / (lengths / lengths.min()), weights)


def boxed_simplex_point(gram: Matrix, lower: Vector, upper: Vector) -> Vector:
    """argmin y.M.y over sum y = 1, lower <= y <= upper; the box must meet the simplex."""
    if np.all(upper - lower < 1e-12):
        only: Vector = lower / lower.sum()
        return only
    ones = np.ones(len(gram))
    scale = np.diag(gram).mean()
    solution = np.clip(_quadratic_programme(gram / scale, ones, lower, upper), lower, upper)
    # The interior-point answer names the active bounds; the free coordinates then follow from a linear system.
    at_lower, at_upper = solution - lower < 1e-7, upper - solution < 1e-7
    free = ~(at_lower | at_upper)
    exact = np.where(at_lower, lower, np.where(at_upper, upper, solution))
    count = int(free.sum())
    if count:
        fixed = gram[np.ix_(free, ~free)] @ exact[~free] / scale
        system = np.block([[gram[np.ix_(free, free)] / scale, ones[free, None]], [ones[None, free], np.zeros((1, 1))]])
        right = np.append(-fixed, 1.0 - exact[~free].sum())
        exact[free] = np.linalg.lstsq(system, right, rcond=1e-13)[0][:count]
    inside = np.all(exact >= lower - 1e-12) and np.all(exact <= upper + 1e-12) and abs(exact.sum() - 1.0) < 1e-12
    better = inside and exact @ gram @ exact <= solution @ gram @ solution + 1e-9 * scale
    return exact if better else solution / solution.sum()


def _polished(unit: Matrix, target: Vector, solution: Vector) -> Vector:
    """On the support found, the optimum solves M y = w exactly; take that where it is non-negative."""
    support = solution > 0.0
    if not support.any():
        return solution
    exact = affine_on_support(unit, target, support)
    if exact is None or (exact < 0.0).any():
        return solution
    old, new = solution / (target @ solution), exact / (target @ exact)
    return exact if new @ unit @ new <= old @ unit @ old * (1.0 + 1e-12) else solution


def affine_on_support(unit: Matrix, target: Vector, support: npt.NDArray[np.bool_]) -> Vector | None:
    block = unit[np.ix_(support, support)]
    eigenvalues = np.linalg.eigvalsh(block)
    if eigenvalues[0] <= 0.5 * RANK_TOLERANCE * max(eigenvalues[-1], 1.0):
        return None
    solution = _solved(block, target[support])
    if solution is None:
        return None
    exact = np.zeros(len(unit))
    exact[support] = solution
    return exact if target @ exact > 0.0 else None


def _solved(matrix: Matrix, right: Vector, at_least: float = 0.0) -> Vector | None:
    """matrix^-1 right by Cholesky; None where rounding has made the matrix indefinite, or where LAPACK's estimate of
    the reciprocal condition number, which costs a thirtieth of the eigenvalues, is below `at_least`."""
    factor, failed = scipy.linalg.lapack.dpotrf(matrix, lower=1)
    if failed:
        return None
    if at_least:
        reciprocal, _ = scipy.linalg.lapack.dpocon(factor, np.abs(matrix).sum(axis=0).max(), uplo="L")
        if reciprocal < at_least:
            return None
    solution: Vector = scipy.linalg.lapack.dpotrs(factor, right, lower=1)[0]
    return solution


def _normalised(solution: Vector, weights: Vector) -> Vector:
    """Scaled to w . y = 1, by way of the largest entry so that no product under- or overflows."""
    solution = solution / np.abs(solution).max()
    scaled: Vector = solution / (weights @ solution)
    return scaled


def _quadratic_programme(gram: Matrix, target: Vector, lower: Vector, upper: Vector) -> Vector:
    """argmin y.M.y over target . y = 1 and bounds, by clarabel's interior-point method."""
    count = len(gram)
    bounded = np.isfinite(upper)
    identity = scipy.sparse.identity(count, format="csc")
    constraints = scipy.sparse.vstack([target[None, :], -identity, identity.tocsr()[bounded]], format="csc")
    right = np.concatenate([[1.0], -lower, upper[bounded]])
    cones = [clarabel.ZeroConeT(1), clarabel.NonnegativeConeT(count + int(bounded.sum()))]
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.max_threads = 1
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-12
    quadratic = scipy.sparse.triu(2.0 * gram, format="csc")
    solver = clarabel.DefaultSolver(quadratic, np.zeros(count), constraints, right, cones, settings)
    return np.asarray(solver.solve().x, dtype=np.float64)
