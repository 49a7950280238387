"""The weighted sum of the updates, the direction of every rule: the other half of the code that touches all d numbers.

A float32 sum carries a relative error of about 2**-24 times the cancellation, the ratio of sum |y_k| |g_k| to the
length of the sum. Nearly parallel updates have large coefficients of both signs, so the sum is then made in float64
and rounded once, to the type of the updates.
"""

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from adafed.algebra.blocks import MEMORY_BUDGET, block_length, in_order
from adafed.algebra.rows import Rows
from adafed.errors import AdafedError

HARMLESS_CANCELLATION = 100.0
_LARGEST_EXPONENT = 64  # coefficients within 2**-64 and 2**64 leave float32 room for the products


def weighted_sum(
    rows: Rows,
    coefficients: ArrayLike,
    *,
    matrix: NDArray[np.float64] | None = None,
    precise: bool = False,
    memory_budget: int = MEMORY_BUDGET,
) -> Tensor:
    """The direction sum of y_k g_k, of length d, in the type and on the device of the updates.

    A row whose coefficient is zero is not read. The Gram matrix of the rows, if it is at hand, says how much cancels;
    then, as with `precise` or with coefficients of extreme size, the sum is made in float64.
    """
    weights = np.asarray(coefficients, dtype=np.float64)
    if weights.shape != (rows.count,):
        raise AdafedError(f"coefficients have shape {weights.shape}: give one for each of the {rows.count} updates")
    if not np.isfinite(weights).all():
        raise AdafedError(f"coefficients are {weights.tolist()}: every one must be finite")
    if matrix is not None:
        precise = precise or cancellation(matrix, weights) > HARMLESS_CANCELLATION
    used = np.flatnonzero(weights)
    rows, weights = rows.select(used), weights[used]
    if rows.count == 0:
        return torch.zeros(rows.length, dtype=rows.dtype, device=rows.device)
    answer = torch.empty(rows.length, dtype=rows.dtype, device=rows.device)
    precise = precise or bool((abs(np.frexp(weights)[1]) > _LARGEST_EXPONENT).any())
    dtype = np.dtype(np.float64 if precise or rows.dtype == torch.float64 else np.float32)
    weights = weights.astype(dtype)
    step = block_length(rows.count)

    in_place = rows.in_place(dtype)

    def part(start: int, stop: int) -> None:
        if not rows.on_cpu:
            there = torch.from_numpy(weights).to(rows.device)
            answer[start:stop] = there @ rows.block(start, stop).to(there.dtype)
            return
        if in_place:  # every number of the answer is its own sum, so the length of a block changes no bit
            np.matmul(weights, rows.view(start, stop, rows.buffer(dtype, 0)), out=answer[start:stop].numpy())
            return
        buffer = rows.buffer(dtype, step)
        with np.errstate(all="ignore"):
            for first in range(start, stop, step):
                last = min(first + step, stop)
                product = weights @ rows.view(first, last, buffer)
                answer[first:last] = torch.from_numpy(product)

    for _ in in_order(part, rows, 8 * step, memory_budget // (rows.count * step * dtype.itemsize)):
        pass
    return answer


def cancellation(matrix: NDArray[np.float64], coefficients: NDArray[np.float64]) -> float:
    """How much longer the terms y_k g_k are than their sum: 1 for one term, infinite for a sum of zero."""
    terms = float(abs(coefficients) @ np.sqrt(matrix.diagonal()))
    squared = float(coefficients @ matrix @ coefficients)
    # What rounding leaves of a sum that cancels to nothing may be negative; no digit of it can be trusted.
    return terms / squared**0.5 if squared > 0.0 else (float("inf") if terms > 0.0 else 1.0)
