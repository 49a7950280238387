"""The weighted sum of the updates, the direction of every rule: the other half of the code that touches all d numbers.

A float32 sum carries a relative error of about 2**-24 times the cancellation, the ratio of sum |y_k| |g_k| to the
length of the sum. Nearly parallel updates have large coefficients of both signs, so the sum is then made in float64
and rounded once, to the type of the updates.
"""

import math
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from adafed.algebra.blocks import MEMORY_BUDGET, block_length, in_order
from adafed.algebra.products import length, squared_length
from adafed.algebra.rows import Array, Rows
from adafed.errors import AdafedError, OutOfRange

HARMLESS_CANCELLATION = 100.0
PARTS = 2.0**10  # of a sum that leaves the range of float64 by rounding: exact, and enough for a thousand clients
_LARGEST_EXPONENT = 64  # coefficients within 2**-64 and 2**64 leave float32 room for the products


class Sum(NamedTuple):
    """A weighted sum and its Euclidean length."""

    vector: Tensor
    norm: float


def weighted_sum(
    rows: Rows,
    coefficients: ArrayLike,
    *,
    matrix: NDArray[np.float64] | None = None,
    precise: bool = False,
    memory_budget: int = MEMORY_BUDGET,
) -> Tensor:
    """The vector of `weighted_sum_and_norm`."""
    return weighted_sum_and_norm(rows, coefficients, matrix=matrix, precise=precise, memory_budget=memory_budget).vector


def weighted_sum_and_norm(
    rows: Rows,
    coefficients: ArrayLike,
    *,
    matrix: NDArray[np.float64] | None = None,
    precise: bool = False,
    memory_budget: int = MEMORY_BUDGET,
) -> Sum:
    """The direction sum of y_k g_k, of length d, in the type and on the device of the updates, and its length, which
    is taken in float64 while each block is still in the cache.

    A row whose coefficient is zero is not read, unless the Gram matrix, if it is at hand, says that all rows are finite
    and most of them are needed: a whole matrix is read faster than many of its rows. It also says how much cancels;
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
    if matrix is None or 2 * len(used) < rows.count:
        rows, weights = rows.select(used), weights[used]
    if len(used) == 0:
        return Sum(torch.zeros(rows.length, dtype=rows.dtype, device=rows.device), 0.0)
    answer = _room(rows)
    numbers = answer.numpy() if rows.on_cpu and rows.dtype in (torch.float32, torch.float64) else None
    precise = precise or bool((abs(np.frexp(weights)[1]) > _LARGEST_EXPONENT).any())
    dtype = np.dtype(np.float64 if precise or rows.dtype == torch.float64 else np.float32)
    weights = weights.astype(dtype)
    step = block_length(rows.count)  # wherever the rows lie: BLAS may round otherwise in blocks of another length

    def part(start: int, stop: int) -> float:
        if not rows.on_cpu:
            there = torch.from_numpy(weights).to(rows.device)
            answer[start:stop] = there @ rows.block(start, stop).to(there.dtype)
            return 0.0
        buffer, squares = rows.buffer(dtype, step), 0.0
        with np.errstate(all="ignore"):
            for first in range(start, stop, step):
                last = min(first + step, stop)
                squares += squared_length(made(first, last, rows.view(first, last, buffer)))
        return squares

    def made(first: int, last: int, block: Array) -> Array:
        """This block of the answer, rounded once to the type of the updates."""
        if numbers is None:
            answer[first:last] = torch.from_numpy(weights @ block)
            return np.asarray(answer[first:last].float().numpy())
        if numbers.dtype == dtype:
            return np.matmul(weights, block, out=numbers[first:last])
        numbers[first:last] = weights @ block
        return numbers[first:last]

    squared = sum(in_order(part, rows, step, memory_budget // (rows.count * step * dtype.itemsize)))
    return Sum(answer, length(answer, squared if rows.on_cpu else None))


def finite_sum_and_norm(
    rows: Rows, coefficients: NDArray[np.float64], *, matrix: NDArray[np.float64] | None = None
) -> Sum:
    """As `weighted_sum_and_norm`, of finite rows, and never a number that is not finite: where a sum leaves the range
    of its type on the way, it is made again in float64 and of smaller parts. One that ends outside is refused."""
    found = weighted_sum_and_norm(rows, coefficients, matrix=matrix)
    if math.isfinite(found.norm) or bool(found.vector.isfinite().all()):
        return found
    wide = weighted_sum_and_norm(rows, coefficients, precise=True)
    if bool(wide.vector.isfinite().all()):
        return wide
    part = weighted_sum_and_norm(rows, coefficients / PARTS, precise=True).vector
    most = torch.finfo(rows.dtype).max / PARTS
    if bool((part.abs() <= most * (1.0 + 4 * torch.finfo(rows.dtype).eps)).all()):  # by rounding alone
        vector = part.clamp(-most, most) * PARTS
        return Sum(vector, length(vector))
    name = str(rows.dtype).removeprefix("torch.")
    raise OutOfRange(f"the direction has numbers that are too large for {name}; the updates are out of all proportion")


def _room(rows: Rows) -> Tensor:
    """Memory for the answer; numpy asks the system for large pages, the first touch of which is three times as fast."""
    if not rows.on_cpu:
        return torch.empty(rows.length, dtype=rows.dtype, device=rows.device)
    return torch.from_numpy(np.empty(rows.length * rows.dtype.itemsize, np.uint8)).view(rows.dtype)


def cancellation(matrix: NDArray[np.float64], coefficients: NDArray[np.float64]) -> float:
    """How much longer the terms y_k g_k are than their sum: 1 for one term, infinite for a sum of zero."""
    terms = float(abs(coefficients) @ np.sqrt(matrix.diagonal()))
    squared = float(coefficients @ matrix @ coefficients)
    # What rounding leaves of a sum that cancels to nothing may be negative; no digit of it can be trusted.
    return terms / squared**0.5 if squared > 0.0 else (float("inf") if terms > 0.0 else 1.0)
