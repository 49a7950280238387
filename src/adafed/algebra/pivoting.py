"""The simplex point over many rows: min ||sum y_k g_k||^2 over y >= 0, w . y = 1, from the Gram matrix, in few solves.

With w the target t, the y that minimises y.M.y + (t . y - 1)^2 over y >= 0 has the direction of the point. Its
conditions: on the support the gradient is zero, off it the gradient is not negative. Block principal pivoting (Kim and
Park 2011, after Portugal, Judice and Vicente 1994) guesses the support, solves on it, and exchanges many rows that
contradict the guess at once; when that stops helping, one row at a time, which ends for every positive definite matrix.
Here few rows enter at a time, those that contradict most: a support is small, and a solve costs its cube. A good first
guess, such as the support of the round before, is right after two or three solves.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import scipy.linalg

Vector = npt.NDArray[np.float64]
Matrix = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

ENTERING = 8  # rows enter at a time, and as many more as a quarter of the support
PATIENCE = 3  # exchanges of whole blocks without progress, before rows are exchanged one at a time
EXACT = 1e-10  # of the largest target: how far a gradient off the support may be below zero, and count as zero


def pivoted_point(unit: Matrix, target: Vector, start: Mask | None = None, *, ridge: float = 0.0) -> Vector | None:
    """y >= 0 in the direction of the point, for a matrix with unit diagonal to which `ridge` is added; None where
    rounding makes it singular on a support, or the exchanges do not end."""
    count = len(unit)
    support = np.zeros(count, bool) if start is None else start.copy()
    support[int(np.argmax(target))] |= not support.any()
    fewest, patience = count + 1, PATIENCE
    for _ in range(10 * count + 100):
        solved = _on_support(unit, target, support, ridge)
        if solved is None:
            return None
        solution, gradient = solved
        wrong = np.where(support, solution < 0.0, gradient < -EXACT * target.max())
        number = int(wrong.sum())
        if number == 0:
            return solution
        if number < fewest:
            fewest, patience = number, PATIENCE
        elif patience:
            patience -= 1
        else:
            wrong = np.arange(count) == np.flatnonzero(wrong)[-1]
        support = support ^ _fewer(wrong, support, gradient)
        if not support.any():  # t >= 0 has a positive entry, which alone already helps
            support[int(np.argmax(target))] = True
    return None


def _fewer(wrong: Mask, support: Mask, gradient: Vector) -> Mask:
    """All that leave, and of those that enter the ones that help most."""
    entering = np.flatnonzero(wrong & ~support)
    most = ENTERING + int(support.sum()) // 4
    if len(entering) <= most:
        return wrong
    few = wrong & support
    few[entering[np.argsort(gradient[entering], kind="stable")[:most]]] = True
    return few


def _on_support(unit: Matrix, target: Vector, support: Mask, ridge: float) -> tuple[Vector, Vector] | None:
    """The unconstrained minimiser on the support, and the gradient everywhere. It is along M^-1 t there; the second
    term only sets the length: with M z = t, y = z / (1 + t . z)."""
    places = np.flatnonzero(support)
    block = unit[np.ix_(places, places)]
    block[np.diag_indices_from(block)] += ridge
    factor, failed = scipy.linalg.lapack.dpotrf(block, lower=1)
    if failed:
        return None
    part = scipy.linalg.lapack.dpotrs(factor, target[places], lower=1)[0]
    reach = float(target[places] @ part)
    if not (np.isfinite(part).all() and reach > 0.0):
        return None
    solution = np.zeros(len(unit))
    solution[places] = part / (1.0 + reach)
    gradient = unit[:, places] @ solution[places] + ridge * solution - target / (1.0 + reach)
    return solution, gradient
