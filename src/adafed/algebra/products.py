"""Lengths of the updates and their inner products with the direction, for rules that ask for no Gram matrix."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from adafed.algebra.blocks import block_length, in_order, one_blas_thread
from adafed.algebra.gram import screen
from adafed.algebra.rows import Array, Rows, kept_room

Vector = npt.NDArray[np.float64]


PIECE = 2**15  # numbers widened to float64 at a time, few enough to stay in the cache


class Products(NamedTuple):
    """||g_k|| and g_k . d for every row, and the length of the mean row."""

    norms: Vector
    rates: Vector
    mean_norm: float


def products(rows: Rows, direction: torch.Tensor | None = None) -> Products:
    """One read of the updates; float32 blocks are summed in float64, extreme ones are multiplied in it too.

    Squares of extreme numbers leave even float64's range, so those rows are divided by their largest entry first.
    """
    _, largest = screen(rows)
    extreme = bool((largest > 1e15).any() or (largest[largest > 0] < 1e-12).any())
    dtype = np.dtype(np.float64 if extreme or rows.dtype == torch.float64 else np.float32)
    step = block_length(rows.count)
    scales = np.where(largest > 0, largest, largest.min(initial=1.0, where=largest > 0)) if extreme else np.ones(1)
    top = float(scales.max())
    kind = torch.float64 if dtype == np.float64 else torch.float32
    target = None if direction is None else direction.detach().cpu().to(kind).numpy()

    def part(start: int, stop: int) -> tuple[Vector, Vector, float]:
        squares, rates, mean = np.zeros(rows.count), np.zeros(rows.count), 0.0
        buffer = rows.buffer(dtype, step if rows.on_cpu else 0)
        for first in range(start, stop, step):
            last = min(first + step, stop)
            there = None if rows.on_cpu else rows.block(first, last).cpu().to(kind).numpy()
            block = rows.view(first, last, buffer) if there is None else there
            if extreme:
                block = block / scales[:, None]
            squares += np.einsum("ij,ij->i", block, block)
            average = (scales / top) @ block / rows.count if extreme else block.mean(axis=0)
            mean += float(average @ average)
            if target is not None:
                rates += block @ target[first:last]
        return squares, rates, mean

    totals = [sum(parts) for parts in zip(*in_order(part, rows, step), strict=True)]
    with np.errstate(over="ignore"):
        return Products(scales * np.sqrt(totals[0]), scales * totals[1], top * float(np.sqrt(totals[2])))


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
