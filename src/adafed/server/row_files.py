"""Where remembered updates lie: in memory up to a budget; beyond it, or for a run that is kept, in a file of places.

A place is written once and given back when nothing names it any more. The states of the last two rounds name theirs, so
a round that is killed has overwritten nothing that its predecessor needs, and a checkpoint writes the new rows alone.
"""

from __future__ import annotations

import mmap
import os
import tempfile
import weakref
from collections.abc import Iterable
from itertools import count
from pathlib import Path

import numpy as np
import torch

from adafed.algebra.rows import Array
from adafed.algebra.stored import Storage, StoredRow, bytes_needed, encoded
from adafed.errors import AdafedError
from adafed.files import full_disk_in_a_sentence

PAGE = 4096
MAPPED, MOST_TOGETHER = 2**26, 64  # bytes and rows mapped at a time


class TornRows(AdafedError):
    """The rows are not those that a checkpoint names."""


class PlacedRow(StoredRow):
    """A row of a file, with its place there and the sum of its bytes as numbers: after a power cut a file may hold what
    it held before. It is `lasting` where the file is there to come back to."""

    place: int
    total: int
    lasting: bool


class RowFile:
    """Equal places for rows of one length. `path` None makes a temporary file, which nobody else can see."""

    def __init__(self, path: Path | None, length: int, storage: Storage) -> None:
        self.path, self.length, self.storage = path, length, storage
        self._where = path or Path(tempfile.gettempdir())
        self.bytes = bytes_needed(length, storage)
        self._stride = -(-self.bytes // PAGE) * PAGE
        self._together = max(min(MAPPED // self._stride, MOST_TOGETHER), 1)  # places in one map
        self._maps: list[Array] = []
        self._named: weakref.WeakValueDictionary[int, PlacedRow] = weakref.WeakValueDictionary()
        with full_disk_in_a_sentence(self._where):
            self._descriptor = _temporary() if path is None else os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        self._close = weakref.finalize(self, os.close, self._descriptor)

    def add(self, vector: Array) -> PlacedRow:
        place = next(place for place in count() if place not in self._named)
        raw = np.empty(self.bytes, np.uint8)
        encoded(vector, self.storage, raw)
        with full_disk_in_a_sentence(self._where):
            self._grow(place)
            left, at = memoryview(raw.data), place * self._stride
            while len(left):  # not through the map, where a full disk is a signal instead of an error
                written = os.pwrite(self._descriptor, left, at)
                left, at = left[written:], at + written
        return self._row(place, _total(raw))

    def find(self, named: list[tuple[int, int]]) -> list[PlacedRow]:
        """The rows that a saved state names, by place and total."""
        size = os.fstat(self._descriptor).st_size
        rows = []
        for place, total in named:
            if place < 0 or (place + 1) * self._stride > size:
                raise TornRows(f"{self.path} is shorter than its checkpoint says; restore it, or begin the run again")
            self._grow(place)
            row = self._named.get(place) or self._row(place, total)  # two states may name one row
            if row.total != total or _total(row.raw) != total:
                raise TornRows(f"{self.path} holds another update than its checkpoint says; restore it, or begin again")
            rows.append(row)
        return rows

    def sync(self) -> None:
        """Wait for the disk."""
        with full_disk_in_a_sentence(self._where):
            os.fsync(self._descriptor)

    def close(self) -> None:
        """Nothing can be added or found any more; rows that are still named can be read."""
        self._close()
        self._maps = []

    def _row(self, place: int, total: int) -> PlacedRow:
        index = place % self._together
        start = index * self._stride
        row = PlacedRow(self._maps[place // self._together][start : start + self.bytes], self.length, self.storage)
        row.place, row.total, row.lasting = place, total, self.path is not None
        self._named[place] = row
        return row

    def _grow(self, place: int) -> None:
        """Map the part of the file that holds this place, making the file longer if it ends before."""
        span = self._together * self._stride
        while len(self._maps) <= place // self._together:
            end = (len(self._maps) + 1) * span
            if os.fstat(self._descriptor).st_size < end:
                os.ftruncate(self._descriptor, end)
            found = mmap.mmap(self._descriptor, span, access=mmap.ACCESS_READ, offset=end - span)
            self._maps.append(np.frombuffer(found, np.uint8))


class RowStore:
    """Rows in memory while they take at most `budget` bytes together, the others in a file; all of them in the file
    at `path`, if there is one to come back to. With `sketch` numbers for each row beside them, in `sketches`. Rows of
    another store that stay `beside` these count towards the budget."""

    def __init__(
        self,
        storage: Storage = "float32",
        budget: int = 2**30,
        path: Path | None = None,
        sketch: int = 0,
        beside: Iterable[object] = (),
    ) -> None:
        self.storage, self.budget, self.path, self.sketch = storage, budget, path, sketch
        self.sketches = RowStore("float32", budget, path and path.with_suffix(".sketches")) if sketch else None
        here = (row for row in beside if isinstance(row, StoredRow) and not isinstance(row, PlacedRow))
        self._used = sum(row.raw.nbytes for row in here)
        self._file: RowFile | None = None

    @property
    def exact(self) -> bool:
        """Whether what is read is what was added."""
        return self.storage == "float32"

    def add(self, update: torch.Tensor) -> torch.Tensor | StoredRow:
        """A copy of an update that is finite. As float32 it stays what it was, on its device and in its own type."""
        if self.storage == "float32" and (update.dtype != torch.float32 or update.device.type != "cpu"):
            return update.detach().clone()
        vector = update.detach().to("cpu", torch.float32).numpy()
        needed = bytes_needed(len(vector), self.storage)
        if self.path is not None or self._used + needed > self.budget:
            return self.file(len(vector)).add(vector)
        raw = np.empty(needed, np.uint8)
        encoded(vector, self.storage, raw)
        row = StoredRow(raw, len(vector), self.storage)
        self._used += needed
        weakref.finalize(row, self._give_back, needed).atexit = False
        return row

    def file(self, length: int) -> RowFile:
        if self._file is None:
            self._file = RowFile(self.path, length, self.storage)
        if self._file.length != length:
            raise TornRows(f"{self.path} holds updates of {self._file.length} numbers, not of {length}")
        return self._file

    def sync(self) -> None:
        if self._file is not None and self.path is not None:
            self._file.sync()
        if self.sketches is not None:
            self.sketches.sync()

    def close(self) -> None:
        if self.sketches is not None:
            self.sketches.close()
        if self._file is not None:
            self._file.close()
            self._file = None

    def _give_back(self, size: int) -> None:
        self._used -= size


def _temporary() -> int:
    """A file that nobody else can see and that is gone when it is closed."""
    descriptor, name = tempfile.mkstemp(prefix="adafed-")
    os.unlink(name)
    return descriptor


def _total(raw: Array) -> int:
    whole = len(raw) // 8 * 8
    return int(raw[:whole].view(np.uint64).sum(dtype=np.uint64)) + int(raw[whole:].sum(dtype=np.uint64))
