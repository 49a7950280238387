"""Updates kept for later rounds: as they were sent, as bfloat16, or as int8 with a scale for every 256 numbers.

What each loses. A bfloat16 has 8 bits of a number's 24, so an entry is off by at most 1/256 of itself. An int8 entry is
off by at most 1/254 of the largest among its 256 neighbours. The errors of the d entries are nearly independent, so
inner products keep more digits than entries do: benchmarks/README.md has the measured ones.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

Array = NDArray[Any]
Bytes = NDArray[np.uint8]
Storage = Literal["float32", "bfloat16", "int8"]
STORAGES: tuple[Storage, ...] = ("float32", "bfloat16", "int8")

NEIGHBOURS = 256  # numbers that share a scale
LEVELS = 127  # int8 on either side of zero


def bytes_needed(length: int, storage: Storage) -> int:
    if storage == "float32":
        return 4 * length
    if storage == "bfloat16":
        return 2 * length
    return length + 4 * _groups(length)


def encoded(vector: Array, storage: Storage, into: Bytes) -> None:
    """Write a finite vector into its bytes."""
    length = len(vector)
    if storage == "float32":
        into.view(np.float32)[...] = vector
    elif storage == "bfloat16":
        into.view(np.int16)[...] = torch.from_numpy(np.ascontiguousarray(vector)).to(torch.bfloat16).view(torch.int16)
    else:
        scales, levels = into[: 4 * _groups(length)].view(np.float32), into[4 * _groups(length) :].view(np.int8)
        padded = np.zeros(_groups(length) * NEIGHBOURS, np.float32)
        padded[:length] = vector
        cut = padded.reshape(-1, NEIGHBOURS)
        scales[...] = np.abs(cut).max(axis=1) / LEVELS
        cut /= np.where(scales > 0, scales, 1.0)[:, None]
        levels[...] = np.rint(padded[:length], out=padded[:length])


class StoredRow:
    """One update in its bytes, wherever they lie; read a piece at a time, as float32 or float64."""

    def __init__(self, raw: Bytes, length: int, storage: Storage) -> None:
        self.raw, self.storage = raw, storage
        self._length = length

    def __len__(self) -> int:
        return self._length

    def read(self, start: int, into: Array) -> None:
        """As many numbers as there is room for, from column `start`."""
        stop = start + len(into)
        if self.storage == "float32":
            into[...] = self.raw.view(np.float32)[start:stop]
        elif self.storage == "bfloat16":  # its 16 bits are the upper half of a float32
            bits = self.raw.view(np.uint16)[start:stop]
            if into.dtype == np.float32:
                np.left_shift(bits, 16, out=into.view(np.uint32), dtype=np.uint32)
            else:
                into[...] = np.left_shift(bits, 16, dtype=np.uint32).view(np.float32)
        else:
            self._read_levels(start, stop, into)

    def _read_levels(self, start: int, stop: int, into: Array) -> None:
        head = 4 * _groups(self._length)
        scales = self.raw[:head].view(np.float32)[start // NEIGHBOURS : _groups(stop)]
        levels = self.raw[head + start : head + stop].view(np.int8)
        whole = (stop - start) // NEIGHBOURS
        if start % NEIGHBOURS == 0 and into.dtype == np.float32 and whole:  # as blocks are, all but the last
            end = whole * NEIGHBOURS
            cut = into[:end].reshape(whole, NEIGHBOURS)
            np.multiply(levels[:end].reshape(whole, NEIGHBOURS), scales[:whole, None], out=cut)
            levels, scales, start, into = levels[end:], scales[whole:], 0, into[end:]
        if len(into):
            first = start % NEIGHBOURS
            into[...] = np.repeat(scales, NEIGHBOURS)[first : first + len(into)] * levels

    def tensor(self) -> torch.Tensor:
        whole = np.empty(self._length, np.float32)
        self.read(0, whole)
        return torch.from_numpy(whole)


def _groups(length: int) -> int:
    return -(-length // NEIGHBOURS)
