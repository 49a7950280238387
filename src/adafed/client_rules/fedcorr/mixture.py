"""Which of some numbers belong to the upper of two normal distributions, fitted together."""

from __future__ import annotations

import warnings

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits


def upper(values: npt.NDArray[np.float64], *, seed: int) -> npt.NDArray[np.bool_]:
    """True for those more likely of the component with the larger mean; nobody where there are not two values."""
    if len(np.unique(values)) < 2 or not np.isfinite(values).all():
        return np.zeros(len(values), dtype=bool)
    from sklearn.exceptions import ConvergenceWarning  # half a second to import, for runs with FedCorr only
    from sklearn.mixture import GaussianMixture

    column = values.reshape(-1, 1)
    with warnings.catch_warnings(), threadpool_limits(limits=1):  # the same bits on any number of cores
        warnings.simplefilter("ignore", ConvergenceWarning)  # an unfinished fit still divides
        fitted = GaussianMixture(n_components=2, random_state=seed % 2**32).fit(column)
        component = fitted.predict(column)
    return np.asarray(component == int(np.argmax(fitted.means_[:, 0])), dtype=bool)
