"""Lengths of the updates and their inner products with the direction, for rules that ask for no Gram matrix."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from adafed.algebra.blocks import block_length, in_order, one_blas_thread
from adafed.algebra.gram import screen
from adafed.algebra.rows import Array, Rows, kept_room

Vector = npt.NDArray[np.float64]


PIECE = 2**15  # numbers widened to float64 at a time, few enough to stay in the cache


class Rates(NamedTuple):
    """g_k . d for every row, and the length of the mean row."""

    rates: Vector
    mean_norm: float


def norms(rows: Rows, largest: Vector | None = None) -> Vector:
    """||g_k|| for every row. `largest` are the rows' largest absolute values, looked up if they are not at hand."""
    how = _Range.of(rows, largest)

    def part(block: Array, _: int, __: int) -> Vector:
        return np.asarray(np.einsum("ij,ij->i", block, block))

    with np.errstate(over="ignore"):  # a length may be beyond float64, and is then infinite
        return np.asarray(how.scales * np.sqrt(_summed(rows, how, part)))


def rates(rows: Rows, direction: torch.Tensor, largest: Vector | None = None) -> Rates:
    """The inner products with the direction, and the length of the mean row, in one read of the updates."""
    how = _Range.of(rows, largest)
    target = direction.detach().cpu().to(torch.float64 if how.dtype == np.float64 else torch.float32).numpy()
    top = float(how.scales.max())
    shares = np.broadcast_to(how.scales / top / rows.count, rows.count).astype(how.dtype)

    def part(block: Array, start: int, stop: int) -> Vector:
        average = shares @ block
        return np.append(block @ target[start:stop], np.dot(average, average))

    totals = _summed(rows, how, part)
    with np.errstate(over="ignore"):
        return Rates(how.scales * totals[:-1], top * math.sqrt(totals[-1]))


class _Range(NamedTuple):
    """How rows are multiplied so that nothing leaves the range of the numbers: float32 blocks are summed in float64;
    extreme ones are multiplied in it too, and since even its squares have a range, divided by their largest entry."""

    dtype: np.dtype[np.float32] | np.dtype[np.float64]
    scales: Vector

    @classmethod
    def of(cls, rows: Rows, largest: Vector | None) -> _Range:
        largest = screen(rows)[1] if largest is None else largest
        extreme = bool((largest > 1e15).any() or (largest[largest > 0] < 1e-12).any())
        wide = extreme or rows.dtype == torch.float64
        scales = np.where(largest > 0, largest, largest.min(initial=1.0, where=largest > 0)) if extreme else np.ones(1)
        return cls(np.dtype(np.float64) if wide else np.dtype(np.float32), scales)

    @property
    def extreme(self) -> bool:
        return len(self.scales) > 1 or self.scales[0] != 1.0


def _summed(rows: Rows, how: _Range, products: Callable[[Array, int, int], Vector]) -> Vector:
    """What `products` makes of each block, summed in float64 and in order."""
    step = block_length(rows.count)
    kind = torch.float64 if how.dtype == np.float64 else torch.float32

    def part(start: int, stop: int) -> Vector:
        total: Vector = np.zeros(1)
        buffer = rows.buffer(how.dtype, step if rows.on_cpu else 0)
        for first in range(start, stop, step):
            last = min(first + step, stop)
            there = None if rows.on_cpu else rows.block(first, last).cpu().to(kind).numpy()
            block = rows.view(first, last, buffer) if there is None else there
            total = total + products(block / how.scales[:, None] if how.extreme else block, first, last)
        return total

    with np.errstate(over="ignore"):
        return np.asarray(sum(in_order(part, rows, step)), dtype=np.float64)


def squared_length(numbers: Array) -> float:
    """The sum of the squares, in float64 piece by piece. In numpy, since torch's calls cost more than the sums, and in
    few calls, since threads wait for each other at every one; the caller holds BLAS to one thread."""
    total = 0.0
    with np.errstate(over="ignore"):
        for first in range(0, len(numbers), PIECE):
            piece = numbers[first : first + PIECE]
            wide = kept_room("squares", 8 * len(piece)).view(np.float64)
            wide[...] = piece
            total += float(np.dot(wide, wide))  # `@` would keep other threads from running meanwhile
    return total


def length(vector: torch.Tensor, squared: float | None = None) -> float:
    """The Euclidean length, from the sum of the squares if that is at hand, and relative to the largest entry where
    squares of float64 would leave their range."""
    total = _squared_length(vector.detach()) if squared is None else squared
    if vector.dtype == torch.float64 and not 1e-280 < total < 1e280:
        largest = float(vector.detach().abs().max())
        if 0.0 < largest < np.inf and largest != 1.0:
            return largest * length(vector.detach() / largest)
    return math.sqrt(total)


def _squared_length(vector: torch.Tensor) -> float:
    total = 0.0
    with one_blas_thread():
        for part in torch.split(vector, 8 * PIECE):
            total += squared_length((part.float() if part.element_size() < 4 else part).cpu().numpy())
    return total
