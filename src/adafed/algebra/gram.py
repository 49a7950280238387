"""The Gram matrix of the updates: half of the code that touches all d numbers.

The other half is `weighted_sum.py`. A pass walks over the d columns in blocks whose length depends on the number of
rows alone. Each block's product is made by numpy's `B @ B.T`, which takes BLAS's syrk and so does half the
multiplications of a general product, and the products are added up in float64, in the order of the columns. Blocks of
few rows are cut into pieces that one call multiplies, for numpy lets no other thread run during a small product.

What is promised. The same rows give the same bits as a matrix, as a list or from a memory-mapped file, for every
number of threads and every memory budget, with the same BLAS on the same kind of processor: threads take whole blocks,
BLAS itself runs on one thread, and the budget limits the number of threads rather than the length of a block. Another
BLAS build, or a GPU, may differ in the last bits.

How exact. Sums of up to 32768 float32 products are off by up to 2**-21 of the two rows' lengths, mostly at random
(2**-17 if a row repeats one number); a solve multiplies what remains, about 2**-24, by the condition number. So when
the condition number says that more than a ten-thousandth could be lost, or an update is so small or large that its
squares leave float32's range, the matrix is made again with every product in float64. Small problems are made that
way at once.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from adafed.algebra.blocks import (
    BLOCKS_A_TASK,
    MEMORY_BUDGET,
    block_length,
    in_order,
    one_blas_thread,
    wide_block_length,
)
from adafed.algebra.rows import Array, Rows

NOT_FINITE = "update has a non-finite value"
ZERO = "update is zero"
OUT_OF_RANGE = "update's squared length leaves the range of float64"

# The float32 pass is trusted while its error, 2**-24, times the condition number stays below 1e-4.
TRUSTED_CONDITION = 1e-4 / 2.0**-24
# Below this mean square, products of single numbers sink towards float32's smallest normal number, 1e-38.
SMALLEST_MEAN_SQUARE = 1e-30
SMALLEST_SQUARED_LENGTH = 1e-290
LARGEST_SQUARED_LENGTH = 1e37  # float32 ends at 3e38

SMALL = 2**20  # numbers in all the updates, up to which float64 takes no time worth saving

LEAST_OUTPUT = 512  # numpy holds the interpreter's lock while it makes 500 numbers or fewer, however long that takes
SHORTEST_PIECE = 512


@dataclass(frozen=True)
class Gram:
    """The Gram matrix of the rows that can be used, and what was found on the way."""

    matrix: NDArray[np.float64]
    kept: NDArray[np.intp]
    dropped: dict[int, str]
    condition: float
    passes: int


def gram_screened(rows: Rows, *, memory_budget: int = MEMORY_BUDGET, solved: bool = True) -> Gram:
    """The Gram matrix without the rows that hold NaN or infinity or only zeros, exact enough to be solved with. Where
    it is only looked at, not `solved` with, its condition is not looked up and is NaN.

    The screening is free: a non-finite number makes its row's squared length non-finite and touches no entry of two
    other rows, so only a row with a suspicious squared length is looked at again.
    """
    narrow = rows.dtype != torch.float64 and rows.count * rows.length > SMALL
    matrix = gram(rows, precise=not narrow, memory_budget=memory_budget)
    squared = matrix.diagonal()
    smallest = SMALLEST_MEAN_SQUARE * rows.length if narrow else SMALLEST_SQUARED_LENGTH
    suspects = np.flatnonzero(~(np.isfinite(squared) & (squared >= smallest)))
    dropped: dict[int, str] = {}
    again = False
    if len(suspects):
        finite, largest = screen(rows.select(suspects), memory_budget=memory_budget)
        for index, is_finite, size in zip(suspects.tolist(), finite, largest, strict=True):
            if not is_finite:
                dropped[index] = NOT_FINITE
            elif size == 0.0:
                dropped[index] = ZERO
            elif narrow:
                again = True  # every square of a float32 fits into float64
            else:
                dropped[index] = OUT_OF_RANGE
    kept = np.array([k for k in range(rows.count) if k not in dropped], dtype=np.intp)
    if dropped:
        matrix = matrix[np.ix_(kept, kept)]
    spread = float("nan")
    if not again and solved:
        spread = condition(matrix)
        again = narrow and spread > TRUSTED_CONDITION
    if again:
        matrix = gram(rows.select(kept), precise=True, memory_budget=memory_budget)
        spread = condition(matrix) if solved else spread
    return Gram(matrix, kept, dropped, spread, 2 if again else 1)


def gram(rows: Rows, *, precise: bool = False, memory_budget: int = MEMORY_BUDGET) -> NDArray[np.float64]:
    """The matrix of all products g_j . g_k; `precise` makes every product in float64, not only their sums."""
    if rows.count == 0:
        return np.zeros((0, 0))
    dtype = np.dtype(np.float64 if precise or rows.dtype == torch.float64 else np.float32)
    step = step_length(rows.count, dtype)
    piece = piece_length(rows.count, step)
    # A task's blocks in one call, where none has to be copied: calls cost as much as small blocks.
    together = piece < step and step % piece == 0 and rows.in_place(dtype)

    def partial(start: int, stop: int) -> NDArray[np.float64]:
        total = np.zeros((rows.count, rows.count))
        buffer = rows.buffer(dtype, step) if rows.on_cpu else None
        with np.errstate(all="ignore"):  # non-finite rows are found afterwards, on the diagonal
            if together:
                whole = start + (stop - start) // step * step
                assert buffer is not None
                for product in _products(rows.view(start, whole, buffer), piece, step // piece):
                    total += product
                start = whole
            for first in range(start, stop, step):
                last = min(first + step, stop)
                if buffer is None:
                    total += _product_on_device(rows.block(first, last), precise)
                else:
                    total += _product(rows.view(first, last, buffer), piece)
        return total

    total = np.zeros((rows.count, rows.count))
    # A block, the products of its pieces, and three sums: the one being made and those that wait to be added.
    products = rows.count * ((BLOCKS_A_TASK if together else 1) * step // piece * dtype.itemsize + 24)
    bytes_a_worker = rows.count * (products + (step + 16) * dtype.itemsize)
    with np.errstate(all="ignore"):
        for part in in_order(partial, rows, step, memory_budget // bytes_a_worker):
            total += part
    return np.where(np.tri(rows.count, dtype=bool), total, total.T)  # the same on both sides to the bit


def within_float32(squared: NDArray[np.float64], length: int) -> bool:
    """Whether all products of rows with these squared lengths stay in float32's range. A length that is not known (NaN)
    and a zero say nothing."""
    used = squared[squared > 0]
    return bool(((used >= SMALLEST_MEAN_SQUARE * length) & (used <= LARGEST_SQUARED_LENGTH)).all())


def step_length(count: int, dtype: np.dtype[Any]) -> int:
    """Columns in a block of this type."""
    return block_length(count) if dtype == np.float32 else min(block_length(count), wide_block_length(count))


def piece_length(count: int, step: int) -> int:
    """Columns in a piece: all of the block, or so few that the products of its pieces are `LEAST_OUTPUT` numbers."""
    pieces = 1 << (LEAST_OUTPUT // count**2).bit_length() if count**2 < LEAST_OUTPUT else 1
    return min(step, max(step // pieces, SHORTEST_PIECE))


def _product(block: Array, piece: int) -> Array:
    """The sum of the products of a block's pieces, the last of which may be shorter."""
    length = block.shape[1]
    if length == piece:
        whole: Array = block @ block.T
        return whole
    full = length // piece * piece
    total: Array = _products(block[:, :full], piece, full // piece).sum(axis=0)
    if full < length:
        rest = block[:, full:]
        total += rest @ rest.T
    return total


def _products(blocks: Array, piece: int, pieces: int) -> Array:
    """The products of blocks that lie side by side, each the sum of those of so many pieces."""
    count, length = blocks.shape
    if length == 0:
        return np.zeros((0, count, count))
    cut = blocks.reshape(count, -1, piece).transpose(1, 0, 2)
    found = np.matmul(cut, cut.transpose(0, 2, 1)).reshape(-1, pieces, count, count)
    total: Array = found.sum(axis=1, dtype=np.float64)
    return total


def _product_on_device(block: Tensor, precise: bool) -> NDArray[np.float64]:
    """A block's product on a GPU; in float64 also where the user lets float32 products be rounded to fewer bits."""
    if precise or torch.get_float32_matmul_precision() != "highest":
        block = block.double()
    elif block.dtype != torch.float64:
        block = block.float()
    return np.asarray((block @ block.T).cpu().numpy(), dtype=np.float64)


def screen(rows: Rows, *, memory_budget: int = MEMORY_BUDGET) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    """For each row, whether all its numbers are finite, and the largest absolute value: one read of the updates.

    For rules that need no Gram matrix; `gram_screened` finds the same for nothing.
    """
    dtype = np.dtype(np.float64 if rows.dtype == torch.float64 else np.float32)
    step = block_length(rows.count)

    def partial(start: int, stop: int) -> Array:
        if not rows.on_cpu:
            return np.asarray(rows.block(start, stop).abs().amax(dim=1).double().cpu().numpy())
        buffer = rows.buffer(dtype, step)
        largest = np.zeros(rows.count, dtype)
        with np.errstate(all="ignore"):
            for first in range(start, stop, step):
                block = rows.view(first, min(first + step, stop), buffer)
                np.maximum(largest, block.max(axis=1), out=largest)  # both hand NaN on
                np.maximum(largest, -block.min(axis=1), out=largest)
        return largest

    largest = np.zeros(rows.count)
    workers = memory_budget // (max(rows.count, 1) * step * dtype.itemsize)
    for part in in_order(partial, rows, step, workers):
        np.maximum(largest, part, out=largest)
    return np.isfinite(largest), largest


def condition(matrix: NDArray[np.float64]) -> float:
    """The condition number of the Gram matrix of the rows scaled to length one.

    The scaling leaves out what does no harm: a Cholesky factorisation is blind to the lengths of the rows.
    """
    if len(matrix) < 2:
        return 1.0
    lengths = np.sqrt(matrix.diagonal())
    with one_blas_thread():
        values = np.linalg.eigvalsh(matrix / lengths / lengths[:, None])
    return float(values[-1] / values[0]) if values[0] > 0 else float("inf")
