"""The formulas of the measures, each on the clients' numbers as plain lists or arrays.

Accuracies are shares in [0, 1]. Every number here is finite: accuracies that are all zero count as perfectly even
(angle 0, divergence 0), and what cannot be computed from the input given is None.
"""

from __future__ import annotations

import math
from numbers import Integral

import numpy as np
import numpy.typing as npt
from scipy.special import xlogy

from adafed.errors import AdafedError

Vector = npt.NDArray[np.float64]


def standard_deviation(values: npt.ArrayLike) -> float:
    """Of the population, unweighted."""
    v = checked("values", values)
    largest = float(np.abs(v).max())
    scale = largest if largest > 1e100 else 1.0  # squares of such numbers would leave the range
    return float(np.std(v / scale) * scale)


def worst(accuracies: npt.ArrayLike, percent: int) -> float:
    """Mean of the ceil(percent % of K) lowest accuracies."""
    a = checked_accuracies(accuracies)
    return float(np.sort(a)[: _tail(len(a), percent)].mean())


def best(accuracies: npt.ArrayLike, percent: int) -> float:
    """Mean of the ceil(percent % of K) highest accuracies."""
    a = checked_accuracies(accuracies)
    return float(np.sort(a)[-_tail(len(a), percent) :].mean())


def angle(accuracies: npt.ArrayLike) -> float:
    """Degrees to the all-ones vector: cos = mean / sqrt(mean^2 + std^2), which is atan(std / mean)."""
    a = checked_accuracies(accuracies)
    return math.degrees(math.atan2(standard_deviation(a), float(a.mean())))


def divergence(accuracies: npt.ArrayLike) -> float:
    """KL of the normalised accuracies to the uniform distribution, in nats: between 0 and log K."""
    a = checked_accuracies(accuracies)
    if not a.any():
        return 0.0
    p = a / a.sum()
    return max(0.0, float(xlogy(p, p * len(a)).sum()))


def jain(accuracies: npt.ArrayLike) -> float:
    """Jain's index: (sum a)^2 / (K sum a^2)."""
    a = checked_accuracies(accuracies)
    if not a.any():
        return 1.0
    a = a / a.max()  # the index ignores scale, and squares of tiny numbers vanish
    return min(1.0, float(a.sum() ** 2 / (len(a) * np.square(a).sum())))


def gini(accuracies: npt.ArrayLike) -> float:
    """Gini coefficient: the mean absolute difference of two clients over twice the mean."""
    a = np.sort(checked_accuracies(accuracies))
    if not a.any():
        return 0.0
    a = a / a[-1]
    ranks = 2.0 * np.arange(1, len(a) + 1) - len(a) - 1
    return max(0.0, float(ranks @ a / (len(a) * a.sum())))


def sampling_floor(accuracies: npt.ArrayLike, test_sizes: npt.ArrayLike) -> float | None:
    """The standard deviation that finite test sets give K equal clients: sqrt((1 - 1/K) mean of a (1 - a) / (n - 1)).

    a (1 - a) / (n - 1) is the unbiased estimate of the variance of an accuracy measured on n samples: at
    n = 50 and a = 0.5 it is seven points of standard deviation. Of that, deviations from the clients' own mean
    show the share 1 - 1/K: three clients show two thirds of the variance, one client none. One sample tells nothing of
    its own variance, so clients with n = 1 are left out of the mean; None when no client is left.
    """
    a = checked_accuracies(accuracies)
    n = checked_sizes(test_sizes, len(a))
    known = n > 1
    if not known.any():
        return None
    return math.sqrt((1 - 1 / len(a)) * float(np.mean(a[known] * (1 - a[known]) / (n[known] - 1))))


def sampling_excess(accuracies: npt.ArrayLike, test_sizes: npt.ArrayLike) -> float | None:
    """What the floor leaves of the standard deviation: sqrt(max(0, std^2 - floor^2))."""
    floor = sampling_floor(accuracies, test_sizes)
    return None if floor is None else math.sqrt(max(0.0, standard_deviation(accuracies) ** 2 - floor**2))


def spread(losses: npt.ArrayLike) -> float | None:
    """Largest minus smallest; None where that is beyond the range of numbers."""
    f = checked("losses", losses)
    with np.errstate(over="ignore"):
        found = float(f.max() - f.min())
    return found if math.isfinite(found) else None


def _tail(clients: int, percent: int) -> int:
    """ceil(percent K / 100) in integers: in floats 0.05 * 140 exceeds 7."""
    if not isinstance(percent, Integral) or not 0 < percent <= 100:
        raise AdafedError(f"percent = {percent} must be a whole number between 1 and 100.")
    return -(-percent * clients // 100)


def checked_accuracies(values: npt.ArrayLike) -> Vector:
    a = checked("accuracies", values)
    outside = (a < 0) | (a > 1)
    if outside.any():
        client = int(np.flatnonzero(outside)[0])
        raise AdafedError(f"accuracies[{client}] = {a[client]:g} lies outside [0, 1].")
    return a


def checked_sizes(values: npt.ArrayLike, clients: int) -> Vector:
    n = checked("test_sizes", values, clients=clients)
    wrong = (n < 1) | (n != np.floor(n))
    if wrong.any():
        client = int(np.flatnonzero(wrong)[0])
        raise AdafedError(f"test_sizes[{client}] = {n[client]:g} is not a positive whole number of samples.")
    return n


def checked(name: str, values: npt.ArrayLike, clients: int | None = None) -> Vector:
    try:
        vector = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise AdafedError(f"{name} must be a list of numbers, one for each client.") from error
    if vector.ndim != 1 or len(vector) == 0:
        raise AdafedError(f"{name} has shape {vector.shape}; it must hold one number for each client.")
    if clients is not None and len(vector) != clients:
        raise AdafedError(f"{name} has {len(vector)} numbers for {clients} clients.")
    if not np.isfinite(vector).all():
        client = int(np.flatnonzero(~np.isfinite(vector))[0])
        raise AdafedError(f"{name}[{client}] = {vector[client]} is not a finite number.")
    return vector
