"""The inner products of new rows with rows that are kept: K N d multiplications where the whole matrix takes N^2 d.

As in `gram.py`, a pass walks over the columns in blocks, multiplies in float32 and adds up in float64, in the order of
the columns, so threads and where the rows lie change no bit.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from adafed.algebra.blocks import MEMORY_BUDGET, in_order
from adafed.algebra.gram import SMALL
from adafed.algebra.rows import Rows

NUMBERS = 2**19  # in a block that is multiplied: half a million stay in the cache
SHORTEST, LONGEST = 2**11, 2**15  # columns
READ, READ_LONGEST = 2**22, 2**14  # numbers and columns that are read at a time: calls cost more than what they copy


def cross(rows: Rows, kept: Rows, *, precise: bool = False, memory_budget: int = MEMORY_BUDGET) -> NDArray[np.float64]:
    """g_j . m_k for every row g_j and every kept row m_k; small problems and `precise` ones all in float64."""
    count = rows.count + kept.count
    if rows.count == 0 or kept.count == 0:
        return np.zeros((rows.count, kept.count))
    wide = precise or rows.dtype == torch.float64 or count * rows.length <= SMALL
    dtype = np.dtype(np.float64 if wide else np.float32)
    step = min(max(1 << (NUMBERS // count).bit_length() - 1, SHORTEST), LONGEST)
    # So many whole blocks, as both are powers of two.
    read = min(max(1 << (READ // count).bit_length() - 1, step), max(READ_LONGEST, step))

    def partial(start: int, stop: int) -> NDArray[np.float64]:
        total = np.zeros((rows.count, kept.count))
        if not rows.on_cpu:
            kind = torch.float64 if wide else torch.float32
            one, other = (each.block(start, stop).to(kind) for each in (rows, kept))
            return np.asarray((one @ other.T).double().cpu().numpy())
        room, kept_room = rows.buffer(dtype, read), kept.buffer(dtype, read, "kept block")
        with np.errstate(all="ignore"):
            for first in range(start, stop, read):
                last = min(first + read, stop)
                fresh, older = rows.view(first, last, room), kept.view(first, last, kept_room)
                for at in range(0, last - first, step):  # the longer side first: BLAS is half as fast again, to the bit
                    total += (older[:, at : at + step] @ fresh[:, at : at + step].T).T
        return total

    found = np.zeros((rows.count, kept.count))
    bytes_a_worker = count * (read + 16) * dtype.itemsize + 16 * rows.count * kept.count
    for part in in_order(partial, rows, step, memory_budget // bytes_a_worker):
        found += part
    return found
