"""The paper's measures of one evaluation as one value, and what a round did to its cohort's losses."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from adafed.metrics.formulas import checked
from adafed.metrics.table import METRICS, Evaluated


@dataclass(frozen=True)
class Fairness:
    """The measures of one evaluation; clients count equally, whatever their size. Fields are entries of the table."""

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
    return fairness_of(Evaluated.of(accuracies, test_sizes, losses))


def fairness_of(evaluated: Evaluated) -> Fairness:
    names = [field.name for field in fields(Fairness) if field.name != "clients"]
    found = {name: METRICS[name].formula(evaluated) for name in names}
    return Fairness(clients=len(evaluated.accuracies), **found)  # type: ignore[arg-type]  # accuracies are always known


def improvement(before: npt.ArrayLike, after: npt.ArrayLike) -> Improvement:
    """rho_t and the mean decrease, from the losses of the same clients before and after a round."""
    old = checked("before", before)
    new = checked("after", after, clients=len(old))
    return Improvement(rho=float(np.mean(new <= old)), mean_decrease=float(np.mean(old - new)))
