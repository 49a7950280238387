"""Lengths of the updates and their inner products with the direction, for rules that ask for no Gram matrix."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from adafed.algebra.gram import Rows, block_length, gram, in_order, screen

Vector = npt.NDArray[np.float64]


class Products(NamedTuple):
    """||g_k|| and g_k . d for every row, and the length of the mean row."""

    norms: Vector
    rates: Vector
    mean_norm: float


def products(rows: Rows, direction: torch.Tensor | None = None) -> Products:
    """One read of the updates; float32 blocks are summed in float64, extreme ones are multiplied in it too."""
    _, largest = screen(rows)
    extreme = bool((largest > 1e15).any() or (largest[largest > 0] < 1e-12).any())
    dtype = np.dtype(np.float64 if extreme or rows.dtype == torch.float64 else np.float32)
    step = block_length(rows.count)
    span = 8 * step
    target = None if direction is None else direction.detach().cpu().to(torch.float64 if extreme else torch.float32)

    def part(start: int, stop: int) -> tuple[Vector, Vector, float]:
        squares, rates, mean = np.zeros(rows.count), np.zeros(rows.count), 0.0
        buffer = rows.buffer(dtype, step) if rows.on_cpu else None
        for first in range(start, stop, step):
            last = min(first + step, stop)
            if buffer is None:
                block = rows.block(first, last).cpu().to(torch.float64 if extreme else torch.float32).numpy()
            else:
                block = rows.view(first, last, buffer)
            squares += np.einsum("ij,ij->i", block, block)
            average = block.mean(axis=0)
            mean += float(average @ average)
            if target is not None:
                rates += block @ target[first:last].numpy().astype(block.dtype, copy=False)
        return squares, rates, mean

    totals = [sum(parts) for parts in zip(*in_order(part, rows, span), strict=True)]
    return Products(np.sqrt(totals[0]), np.asarray(totals[1]), float(np.sqrt(totals[2])))


def length(vector: torch.Tensor) -> float:
    """The Euclidean length, summed in float64."""
    return float(np.sqrt(gram(Rows(vector[None]), precise=True)[0, 0]))
