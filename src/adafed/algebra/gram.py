"""The updates as rows, and the Gram matrix of those rows: half of the code that touches all d numbers.

The other half is `weighted_sum.py`. A pass walks over the d columns in blocks whose length depends on the number of
rows alone. Each block's product is made by numpy's `B @ B.T`, which takes BLAS's syrk and so does half the
multiplications of a general product, and the products are added up in float64, in the order of the columns.

What is promised. The same rows give the same bits as a matrix, as a list or from a memory-mapped file, for every
number of threads and every memory budget, with the same BLAS on the same kind of processor: threads take whole blocks,
BLAS itself runs on one thread, and the budget limits the number of threads rather than the length of a block. Another
BLAS build, or a GPU, may differ in the last bits.

How exact. Sums of 16384 to 32768 float32 products are off by up to 2**-21 of the two rows' lengths, mostly at random
(2**-17 if a row repeats one number); a solve multiplies what remains, about 2**-24, by the condition number. So when
the condition number says that more than a ten-thousandth could be lost, or an update is so small or large that its
squares leave float32's range, the matrix is made again with every product in float64. Small problems are made that
way at once.
"""

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]
from torch import Tensor

from adafed.errors import AdafedError

Array = NDArray[Any]
Updates = Tensor | Array | Sequence[Tensor | Array]
Result = TypeVar("Result")

MEMORY_BUDGET = 256 * 2**20  # bytes of work space beyond the updates and the answer
NOT_FINITE = "update has a non-finite value"
ZERO = "update is zero"
OUT_OF_RANGE = "update's squared length leaves the range of float64"

# The float32 pass is trusted while its error, 2**-24, times the condition number stays below 1e-4.
TRUSTED_CONDITION = 1e-4 / 2.0**-24
# Below this mean square, products of single numbers sink towards float32's smallest normal number, 1e-38.
SMALLEST_MEAN_SQUARE = 1e-30
SMALLEST_SQUARED_LENGTH = 1e-290

SMALL = 2**20  # numbers in all the updates, up to which float64 takes no time worth saving

_BLOCKS_A_TASK = 8
_FLOATING = {torch.float16, torch.bfloat16, torch.float32, torch.float64}
_NUMPY_DTYPES = {
    np.dtype(np.float16): torch.float16,
    np.dtype(np.float32): torch.float32,
    np.dtype(np.float64): torch.float64,
}


class FileRows(np.ndarray[Any, Any]):
    """Float32 updates in a file mapped from its first byte. They are read through `descriptor`: pages that are touched
    in a map stay in the process's memory, and the system maps many around each."""

    descriptor: int = -1
    row_bytes: int = 0


class _FileRow:
    """One of those rows."""

    dtype = np.dtype(np.float32)

    def __init__(self, descriptor: int, first: int, length: int) -> None:
        self._descriptor, self._first, self._length = descriptor, first, length

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, columns: slice) -> Array:
        read = np.empty(columns.stop - columns.start, np.float32)
        self.read(columns.start, read)
        return read

    def read(self, start: int, into: Array) -> None:
        """As many numbers as there is room for, from column `start`."""
        left, at = memoryview(into.view(np.uint8).data), self._first + 4 * start
        while len(left):
            count = os.preadv(self._descriptor, [left], at)
            if count == 0:
                raise AdafedError("the file of the updates ends before their last row")
            left, at = left[count:], at + count


class Rows:
    """K updates of length d, wherever they lie: a K x d tensor or array, or K flat ones; nothing is copied.

    `history` appends rows of the same kind, such as the updates of earlier rounds.
    """

    def __init__(self, updates: Updates, history: Updates | None = None) -> None:
        matrix, vectors = _split(updates, "updates")
        self.dtype, self.device = _kind(updates)
        if history is not None and len(history):
            _, older = _split(history, "history")
            if _kind(history) != (self.dtype, self.device):
                raise AdafedError(
                    f"history is {_name(*_kind(history))} and updates are {_name(self.dtype, self.device)}: "
                    "give both the same type and device"
                )
            matrix, vectors = None, vectors + older
        lengths = {len(vector) for vector in vectors}
        if len(lengths) > 1:
            raise AdafedError(f"updates have different lengths {sorted(lengths)}: every update must have one length")
        if isinstance(updates, FileRows):
            length = updates.shape[1]
            rows = [_FileRow(updates.descriptor, k * updates.row_bytes, length) for k in range(len(updates))]
            matrix, vectors = None, rows + list[Any](vectors[len(rows) :])
        self._matrix = matrix
        self._vectors: list[Any] = vectors
        self.count = len(vectors)
        self.length = lengths.pop()

    def select(self, indices: Sequence[int] | NDArray[np.integer[Any]]) -> "Rows":
        """These rows only; the others are not read again, because zero times a non-finite number is not zero."""
        chosen = [int(index) for index in indices]
        if chosen == list(range(self.count)):
            return self
        rows = object.__new__(Rows)
        rows.dtype, rows.device, rows.length = self.dtype, self.device, self.length
        rows._matrix = None
        rows._vectors = [self._vectors[index] for index in chosen]
        rows.count = len(chosen)
        return rows

    def block(self, start: int, stop: int) -> Tensor:
        """A copy of columns start to stop, count x (stop - start), in the type and on the device of the updates."""
        stop = min(stop, self.length)
        if self.on_cpu:
            dtype = np.float64 if self.dtype == torch.float64 else np.float32
            buffer = np.empty((self.count, stop - start), dtype)
            self._fill(buffer, start, stop)
            return torch.from_numpy(buffer).to(self.dtype)
        return torch.stack([torch.as_tensor(vector[start:stop]) for vector in self._vectors])

    @property
    def on_cpu(self) -> bool:
        return self.device.type == "cpu"

    def view(self, start: int, stop: int, buffer: Array) -> Array:
        """Columns start to stop in the buffer's type: a view of the updates if they have it, else in the buffer."""
        if self.in_place(buffer.dtype):
            assert self._matrix is not None
            return self._matrix[:, start:stop]  # type: ignore[return-value]
        return self._fill(buffer[:, : stop - start], start, stop)

    def in_place(self, dtype: np.dtype[Any]) -> bool:
        """Whether BLAS can read the updates where they lie; very short rows it would sum in another order."""
        matrix = self._matrix
        if not isinstance(matrix, np.ndarray) or matrix.dtype != dtype:
            return False
        return matrix.strides[1] == dtype.itemsize and matrix.strides[0] >= 64 * dtype.itemsize

    def buffer(self, dtype: np.dtype[Any], length: int) -> Array:
        """Room for a block; the odd row length keeps the rows of a block from sharing the same lines of the cache."""
        return np.empty((self.count, 0 if self.in_place(dtype) else length + 16), dtype)

    def _fill(self, into: Array, start: int, stop: int) -> Array:
        for target, vector in zip(into, self._vectors, strict=True):
            if isinstance(vector, _FileRow) and target.dtype == vector.dtype:
                vector.read(start, target)
                continue
            part: Any = vector[start:stop]
            if self.dtype == torch.bfloat16:  # held as its 16 bits, which are the upper half of a float32
                part = np.left_shift(part, 16, dtype=np.uint32).view(np.float32)
            target[...] = part
        return into


def _kind(updates: Updates) -> tuple[torch.dtype, torch.device]:
    first = updates if isinstance(updates, Tensor | np.ndarray) else updates[0]
    if isinstance(first, Tensor):
        return first.dtype, first.device
    return _NUMPY_DTYPES[first.dtype], torch.device("cpu")


def _name(dtype: torch.dtype, device: torch.device) -> str:
    return f"{str(dtype).removeprefix('torch.')} on {device}"


def _split(updates: Updates, name: str) -> tuple[Tensor | Array | None, list[Tensor | Array]]:
    """The matrix, if there is one, and its rows, all checked and, on the CPU, seen as numpy arrays."""
    if isinstance(updates, Tensor | np.ndarray):
        if updates.ndim != 2:
            raise AdafedError(f"{name} have shape {tuple(updates.shape)}: give K x d, one row for each client")
        if 0 in updates.shape:
            raise AdafedError(f"{name} have shape {tuple(updates.shape)}: give at least one row and one column")
        matrix = _plain(updates, name)
        return matrix, list(matrix)
    if len(updates) == 0:
        raise AdafedError(f"{name} are an empty list: give at least one update")
    for index, update in enumerate(updates):
        if not isinstance(update, Tensor | np.ndarray):
            raise AdafedError(
                f"{name}[{index}] is a {type(update).__name__}: give a flat tensor or numpy array for each client"
            )
        if update.ndim != 1 or len(update) == 0:
            raise AdafedError(
                f"{name}[{index}] has shape {tuple(update.shape)}: give one flat, non-empty vector for each client"
            )
    vectors = [_plain(update, f"{name}[{index}]") for index, update in enumerate(updates)]
    kinds = sorted({_name(*_kind([update])) for update in updates})
    if len(kinds) > 1:
        raise AdafedError(f"{name} are of kinds {', '.join(kinds)}: give all of them the same type and device")
    return None, vectors


def _plain(update: Tensor | Array, name: str) -> Tensor | Array:
    dtype = update.dtype if isinstance(update, Tensor) else _NUMPY_DTYPES.get(update.dtype)
    if dtype not in _FLOATING:
        given = str(update.dtype).removeprefix("torch.")
        raise AdafedError(
            f"{name} has the number type {given}: give float32, float64, float16 or bfloat16 in native byte order"
        )
    if isinstance(update, np.ndarray):
        return update.view(np.ndarray)  # a plain view of a memory map: slices of np.memmap itself are slow
    update = update.detach()
    if update.device.type != "cpu":
        return update
    if dtype == torch.bfloat16:
        return np.asarray(update.view(torch.int16).numpy()).view(np.uint16)
    return np.asarray(update.numpy())


@dataclass(frozen=True)
class Gram:
    """The Gram matrix of the rows that can be used, and what was found on the way."""

    matrix: NDArray[np.float64]
    kept: NDArray[np.intp]
    dropped: dict[int, str]
    condition: float
    passes: int


def gram_screened(rows: Rows, *, memory_budget: int = MEMORY_BUDGET) -> Gram:
    """The Gram matrix without the rows that hold NaN or infinity or only zeros, exact enough to be solved with.

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
    kept = np.setdiff1d(np.arange(rows.count), list(dropped)).astype(np.intp)
    matrix = matrix[np.ix_(kept, kept)]
    if not again:
        spread = condition(matrix)
        again = narrow and spread > TRUSTED_CONDITION
    if again:
        matrix = gram(rows.select(kept), precise=True, memory_budget=memory_budget)
        spread = condition(matrix)
    return Gram(matrix, kept, dropped, spread, 2 if again else 1)


def gram(rows: Rows, *, precise: bool = False, memory_budget: int = MEMORY_BUDGET) -> NDArray[np.float64]:
    """The matrix of all products g_j . g_k; `precise` makes every product in float64, not only their sums."""
    if rows.count == 0:
        return np.zeros((0, 0))
    dtype = np.dtype(np.float64 if precise or rows.dtype == torch.float64 else np.float32)
    step = block_length(rows.count)

    def partial(start: int, stop: int) -> NDArray[np.float64]:
        total = np.zeros((rows.count, rows.count))
        buffer = rows.buffer(dtype, step) if rows.on_cpu else None
        with np.errstate(all="ignore"):  # non-finite rows are found afterwards, on the diagonal
            for first in range(start, stop, step):
                last = min(first + step, stop)
                if buffer is None:
                    total += _product_on_device(rows.block(first, last), precise)
                else:
                    block = rows.view(first, last, buffer)
                    total += block @ block.T
        return total

    total = np.zeros((rows.count, rows.count))
    # A block, its product, and three sums: the one being made and those that wait to be added.
    bytes_a_worker = rows.count * (rows.count * (dtype.itemsize + 24) + (step + 16) * dtype.itemsize)
    with np.errstate(all="ignore"):
        for part in in_order(partial, rows, step * _BLOCKS_A_TASK, memory_budget // bytes_a_worker):
            total += part
    return np.tril(total) + np.tril(total, -1).T


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
    for part in in_order(partial, rows, step * _BLOCKS_A_TASK, workers):
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


def block_length(count: int) -> int:
    """Columns in a block: about two million numbers, no more than keeps float32 sums exact, no less than is fast."""
    return 1 << min(max((2**21 // max(count, 1)).bit_length() - 1, 10), 15)


def in_order(task: Callable[[int, int], Result], rows: Rows, span: int, at_most: int | None = None) -> Iterator[Result]:
    """Run task(start, stop) for each span of columns on torch's number of threads; the results come in order."""
    starts = range(0, rows.length, span)
    workers = min(torch.get_num_threads() if rows.on_cpu else 1, len(starts), os.cpu_count() or 1)
    if at_most is not None:
        workers = max(1, min(workers, at_most))
    with one_blas_thread():
        if workers == 1:
            for start in starts:
                yield task(start, min(start + span, rows.length))
            return
        waiting: deque[Future[Result]] = deque()
        with ThreadPoolExecutor(workers) as pool:
            for start in starts:
                if len(waiting) > workers:  # a slow reader must not let results pile up
                    yield waiting.popleft().result()
                waiting.append(pool.submit(task, start, min(start + span, rows.length)))
            while waiting:
                yield waiting.popleft().result()


_blas_lock = threading.Lock()
_blas_users = 0
_blas_limit: Any = None
_blas_controller: Any = None


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Hold numpy's BLAS to one thread: its own threads would split a block's sums by their number.

    The limit belongs to the process, so the first to come sets it and the last to leave lifts it.
    """
    global _blas_users, _blas_limit, _blas_controller
    with _blas_lock:
        if _blas_users == 0:
            _blas_controller = _blas_controller or ThreadpoolController()
            _blas_limit = _blas_controller.limit(limits=1, user_api="blas")
        _blas_users += 1
    try:
        yield
    finally:
        with _blas_lock:
            _blas_users -= 1
            if _blas_users == 0:
                _blas_limit.restore_original_limits()
