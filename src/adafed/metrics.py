"""How evenly one model serves K clients: the paper's measures of fairness, on the clients' test accuracies.

Accuracies are shares in [0, 1]; whoever prints them makes them percent. Every number here is finite:
accuracies that are all zero count as perfectly even (angle 0, divergence 0), and what cannot be computed from
the input given is None.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import xlogy

from adafed.errors import AdafedError

Vector = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Fairness:
    """The measures of one evaluation; clients count equally, whatever their size."""

    clients: int
    mean: float
    std: float  # sigma_a, of the population: no K / (K - 1)
    worst_5: float  # mean of the ceil(5 % of K) lowest accuracies
    worst_10: float
    best_5: float
    best_10: float
    angle: float  # degrees between the accuracies and the all-ones vector
    kl: float  # KL(a / sum(a) || uniform), in nats
    jain: float  # 1 when even, 1 / K when one client has everything
    gini: float  # 0 when even, 1 - 1 / K when one client has everything
    floor: float | None  # the part of std that chance alone explains, given the test sizes
    excess: float | None  # what is left of std: sqrt(max(0, std^2 - floor^2))
    loss_std: float | None
    loss_range: float | None  # largest minus smallest client loss


@dataclass(frozen=True)
class Improvement:
    """What one round did to the losses of the clients in its cohort."""

    rho: float  # rho_t: share of the cohort whose loss did not rise
    mean_decrease: float  # of the loss, over the cohort; negative when it rose


def fairness(
    accuracies: npt.ArrayLike, test_sizes: npt.ArrayLike | None = None, losses: npt.ArrayLike | None = None
) -> Fairness:
    """All measures at once. `test_sizes` adds the sampling floor, `losses` the spread of the losses."""
    a = _accuracies(accuracies)
    floor = excess = loss_std = loss_range = None
    if test_sizes is not None:
        floor = sampling_floor(a, test_sizes)
    if floor is not None:
        excess = math.sqrt(max(0.0, standard_deviation(a) ** 2 - floor**2))
    if losses is not None:
        f = _vector("losses", losses, clients=len(a))
        loss_std, loss_range = standard_deviation(f), float(f.max() - f.min())
    return Fairness(
        clients=len(a),
        mean=float(a.mean()),
        std=standard_deviation(a),
        worst_5=worst(a, 5),
        worst_10=worst(a, 10),
        best_5=best(a, 5),
        best_10=best(a, 10),
        angle=angle(a),
        kl=divergence(a),
        jain=jain(a),
        gini=gini(a),
        floor=floor,
        excess=excess,
        loss_std=loss_std,
        loss_range=loss_range,
    )


def improvement(before: npt.ArrayLike, after: npt.ArrayLike) -> Improvement:
    """rho_t and the mean decrease, from the losses of the same clients before and after a round."""
    old = _vector("before", before)
    new = _vector("after", after, clients=len(old))
    return Improvement(rho=float(np.mean(new <= old)), mean_decrease=float(np.mean(old - new)))


def standard_deviation(values: npt.ArrayLike) -> float:
    """Of the population, unweighted."""
    return float(np.std(_vector("values", values)))


def worst(accuracies: npt.ArrayLike, percent: int) -> float:
    """Mean of the ceil(percent % of K) lowest accuracies."""
    a = _accuracies(accuracies)
    return float(np.sort(a)[: _tail(len(a), percent)].mean())


def best(accuracies: npt.ArrayLike, percent: int) -> float:
    """Mean of the ceil(percent % of K) highest accuracies."""
    a = _accuracies(accuracies)
    return float(np.sort(a)[-_tail(len(a), percent) :].mean())


def angle(accuracies: npt.ArrayLike) -> float:
    """Degrees to the all-ones vector: cos = mean / sqrt(mean^2 + std^2), which is atan(std / mean)."""
    a = _accuracies(accuracies)
    return math.degrees(math.atan2(standard_deviation(a), float(a.mean())))


def divergence(accuracies: npt.ArrayLike) -> float:
    """KL of the normalised accuracies to the uniform distribution, in nats: between 0 and log K."""
    a = _accuracies(accuracies)
    if not a.any():
        return 0.0
    p = a / a.sum()
    return max(0.0, float(xlogy(p, p * len(a)).sum()))


def jain(accuracies: npt.ArrayLike) -> float:
    """Jain's index: (sum a)^2 / (K sum a^2)."""
    a = _accuracies(accuracies)
    if not a.any():
        return 1.0
    a = a / a.max()  # the index ignores scale, and squares of tiny numbers vanish
    return min(1.0, float(a.sum() ** 2 / (len(a) * np.square(a).sum())))


def gini(accuracies: npt.ArrayLike) -> float:
    """Gini coefficient: the mean absolute difference of two clients over twice the mean."""
    a = np.sort(_accuracies(accuracies))
    if not a.any():
        return 0.0
    a = a / a[-1]
    ranks = 2.0 * np.arange(1, len(a) + 1) - len(a) - 1
    return max(0.0, float(ranks @ a / (len(a) * a.sum())))


def sampling_floor(accuracies: npt.ArrayLike, test_sizes: npt.ArrayLike) -> float | None:
    """The standard deviation that finite test sets add to equal clients: sqrt(mean of a (1 - a) / (n - 1)).

    a (1 - a) / (n - 1) is the unbiased estimate of the variance of an accuracy measured on n samples: at
    n = 50 and a = 0.5 it is seven points of standard deviation. One sample tells nothing of its own variance,
    so clients with n = 1 are left out; None when no client is left.
    """
    a = _accuracies(accuracies)
    n = _vector("test_sizes", test_sizes, clients=len(a))
    if (n < 1).any() or (n != np.floor(n)).any():
        client = int(np.flatnonzero((n < 1) | (n != np.floor(n)))[0])
        raise AdafedError(f"test_sizes[{client}] = {n[client]:g} is not a positive whole number of samples.")
    known = n > 1
    if not known.any():
        return None
    return math.sqrt(float(np.mean(a[known] * (1 - a[known]) / (n[known] - 1))))


def _tail(clients: int, percent: int) -> int:
    """ceil(percent K / 100) in integers: in floats 0.05 * 140 exceeds 7."""
    if not 0 < percent <= 100:
        raise AdafedError(f"percent = {percent} must be between 1 and 100.")
    return -(-percent * clients // 100)


def _accuracies(values: npt.ArrayLike) -> Vector:
    a = _vector("accuracies", values)
    outside = (a < 0) | (a > 1)
    if outside.any():
        client = int(np.flatnonzero(outside)[0])
        raise AdafedError(f"accuracies[{client}] = {a[client]:g} lies outside [0, 1].")
    return a


def _vector(name: str, values: npt.ArrayLike, clients: int | None = None) -> Vector:
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
