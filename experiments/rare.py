"""A partition in which one client alone has a class, and nothing else; the others share the rest at random."""

import numpy as np


def alone(labels: np.ndarray, clients: int, rare: int, seed: int) -> list[np.ndarray]:
    """The samples of each client, of which the first has all that are labelled `rare`."""
    others = np.random.default_rng(seed).permutation(np.flatnonzero(labels != rare))
    return [np.flatnonzero(labels == rare), *np.array_split(others, clients - 1)]
