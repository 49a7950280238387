"""The updates as rows, wherever they lie: a matrix, vectors, a memory map or a file. Nothing is copied whole."""

import os
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from adafed.algebra.stored import StoredRow
from adafed.errors import AdafedError

Array = NDArray[Any]
Updates = Tensor | Array | Sequence[Tensor | Array]

_FLOATING = {torch.float16, torch.bfloat16, torch.float32, torch.float64}
_NUMPY_DTYPES = {
    np.dtype(np.float16): torch.float16,
    np.dtype(np.float32): torch.float32,
    np.dtype(np.float64): torch.float64,
}


# The system clears every page it hands out, which for a block of this size takes as long as the block's product.
KEPT_ROOM = 2**21
_thread = threading.local()


def kept_room(use: str, size: int) -> Array:
    """So many bytes, of any content, for the calling thread and this use of it alone; lost at the next call."""
    if size > KEPT_ROOM:
        return np.empty(size, np.uint8)
    kept: Array | None = getattr(_thread, use, None)
    if kept is None or kept.nbytes < size:
        kept = np.empty(size, np.uint8)
        setattr(_thread, use, kept)
    return kept[:size]


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

    `history` appends rows of the same kind, such as the updates of earlier rounds; `with_stored` any that were kept.
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
        if chosen and chosen == list(range(self.count)):
            return self
        rows = object.__new__(Rows)
        rows.dtype, rows.device, rows.length = self.dtype, self.device, self.length
        rows._matrix = None
        rows._vectors = [self._vectors[index] for index in chosen]
        rows.count = len(chosen)
        return rows

    def with_stored(self, stored: Sequence[Tensor | StoredRow]) -> "Rows":
        """These rows and, behind them, some that were kept from earlier rounds."""
        if not stored:
            return self
        for row in stored:
            if len(row) != self.length:
                raise AdafedError(f"a remembered update has length {len(row)} and the updates have {self.length}")
            if isinstance(row, Tensor) and _kind([row]) != (self.dtype, self.device):
                raise AdafedError(
                    f"a remembered update is {_name(*_kind([row]))} and the updates are "
                    f"{_name(self.dtype, self.device)}: give both the same type and device"
                )
        rows = self.select([])
        plain = [row if isinstance(row, StoredRow) else _plain(row, "a remembered update") for row in stored]
        rows._vectors = [*self._vectors, *plain]
        rows.count = len(rows._vectors)
        return rows

    @classmethod
    def of_stored(cls, stored: Sequence[Tensor | StoredRow]) -> "Rows":
        """Some rows that were kept from earlier rounds, alone."""
        rows = object.__new__(cls)
        rows.dtype, rows.device = (torch.float32, torch.device("cpu"))
        if isinstance(stored[0], Tensor):
            rows.dtype, rows.device = stored[0].dtype, stored[0].device
        rows.length, rows._matrix, rows._vectors, rows.count = len(stored[0]), None, [], 0
        return rows.with_stored(stored)

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
            return self._matrix[:, start:stop]  # type: ignore[return-value]  # numpy's own: `in_place` looked
        return self._fill(buffer[:, : stop - start], start, stop)

    def in_place(self, dtype: np.dtype[Any]) -> bool:
        """Whether BLAS can read the updates where they lie; very short rows it would sum in another order."""
        matrix = self._matrix
        if not isinstance(matrix, np.ndarray) or matrix.dtype != dtype:
            return False
        return matrix.strides[1] == dtype.itemsize and matrix.strides[0] >= 64 * dtype.itemsize

    def buffer(self, dtype: np.dtype[Any], length: int, use: str = "block") -> Array:
        """Room for a block, the same for every block of a thread; the odd row length keeps the rows of a block from
        sharing the same lines of the cache. Two sets of rows that are read side by side need two uses."""
        shape = (self.count, 0 if self.in_place(dtype) else length + 16)
        return kept_room(use, shape[0] * shape[1] * dtype.itemsize).view(dtype).reshape(shape)

    def _fill(self, into: Array, start: int, stop: int) -> Array:
        if isinstance(self._matrix, np.ndarray) and self.dtype != torch.bfloat16:
            into[...] = self._matrix[:, start:stop]  # in one call, which lets other threads run
            return into
        for target, vector in zip(into, self._vectors, strict=True):
            if isinstance(vector, StoredRow) or (isinstance(vector, _FileRow) and target.dtype == vector.dtype):
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
        _require_numbers(updates, name)
        if updates.ndim != 2:
            raise AdafedError(f"{name} have shape {tuple(updates.shape)}: give K x d, one row for each client")
        if 0 in updates.shape:
            raise AdafedError(f"{name} have shape {tuple(updates.shape)}: give at least one row and one column")
        matrix = _plain(updates, name)
        return matrix, list(matrix)
    if isinstance(updates, Mapping) or not (hasattr(updates, "__len__") and hasattr(updates, "__getitem__")):
        raise AdafedError(f"{name} are a {type(updates).__name__}: give K x d, or a list of K flat tensors")
    if len(updates) == 0:
        raise AdafedError(f"{name} are an empty list: give at least one update")
    for index, update in enumerate(updates):
        if not isinstance(update, Tensor | np.ndarray):
            raise AdafedError(
                f"{name}[{index}] is a {type(update).__name__}: give a flat tensor or numpy array for each client"
            )
        _require_numbers(update, f"{name}[{index}]")
        if update.ndim != 1 or len(update) == 0:
            raise AdafedError(
                f"{name}[{index}] has shape {tuple(update.shape)}: give one flat, non-empty vector for each client"
            )
    vectors = [_plain(update, f"{name}[{index}]") for index, update in enumerate(updates)]
    kinds = sorted({_name(*_kind([update])) for update in updates})
    if len(kinds) > 1:
        raise AdafedError(f"{name} are of kinds {', '.join(kinds)}: give all of them the same type and device")
    return None, vectors


def _require_numbers(update: Tensor | Array, name: str) -> None:
    """That they lie in memory, one beside the other."""
    if isinstance(update, np.ma.MaskedArray):
        raise AdafedError(f"{name} is a masked array: give a plain one")
    if isinstance(update, Tensor) and (update.layout != torch.strided or update.is_nested):
        kind = "nested" if update.is_nested else str(update.layout).removeprefix("torch.")
        raise AdafedError(f"{name} is a {kind} tensor: give a dense one, as .to_dense() makes it")
    if isinstance(update, Tensor) and update.device.type == "meta":
        raise AdafedError(f"{name} is a tensor on the meta device, which has no numbers: give one that has")


def _plain(update: Tensor | Array, name: str) -> Tensor | Array:
    dtype = update.dtype if isinstance(update, Tensor) else _NUMPY_DTYPES.get(update.dtype)
    if dtype not in _FLOATING:
        given = str(update.dtype).removeprefix("torch.")
        raise AdafedError(
            f"{name} has the number type {given}: give float32, float64, float16 or bfloat16 in native byte order"
        )
    if isinstance(update, np.ndarray):
        return update.view(np.ndarray)  # a plain view of a memory map: slices of np.memmap itself are slow
    update = update.detach().resolve_neg()
    if update.device.type != "cpu":
        return update
    if dtype == torch.bfloat16:
        return np.asarray(update.view(torch.int16).numpy()).view(np.uint16)
    return np.asarray(update.numpy())
