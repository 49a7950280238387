"""Count-sketches: m numbers that stand for the d of an update where only inner products are asked for.

Every column is added, with a random sign, to one of m random places, the same for all updates (Charikar, Chen and
Farach-Colton 2002). The inner product of two sketches is that of the updates on average, and off by about
|g_j| |g_k| sqrt(2 / m); a matrix of such products is a Gram matrix, so no rule meets one that cannot be.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from adafed.algebra.rows import Rows

PLACES = 20020214  # any number: it only has to stay the same


@lru_cache(maxsize=2)
def _columns(length: int, size: int) -> tuple[NDArray[np.int32], NDArray[np.int8]]:
    """The place and the sign of every column."""
    random = np.random.Generator(np.random.PCG64(PLACES))
    places = random.integers(size, size=length, dtype=np.int32)
    return places, (2 * random.integers(2, size=length, dtype=np.int8) - 1).astype(np.int8)


def sketched(rows: Rows, size: int) -> NDArray[np.float32] | NDArray[np.float64]:
    """The sketch of every row, one below the other, as it is kept; in float64 where that is too narrow, for a guard may
    shorten what is too long."""
    places, signs = _columns(rows.length, size)
    found = np.empty((rows.count, size))
    for k in range(rows.count):  # one at a time: a row in float64 is all the room it takes
        vector = rows.select([k]).block(0, rows.length)[0].double().cpu().numpy()
        found[k] = np.bincount(places, weights=vector * signs, minlength=size)
    with np.errstate(over="ignore"):
        narrow = found.astype(np.float32)
    return narrow if np.isfinite(narrow).all() else found
