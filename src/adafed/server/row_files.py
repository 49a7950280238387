"""Where remembered updates lie: in memory up to a budget; beyond it, or for a run that is kept, in a file of places.

A place is written once and given back when nothing names it any more. The states of the last two rounds name theirs, so
a round that is killed has overwritten nothing that its predecessor needs, and a checkpoint writes the new rows alone.
"""

from __future__ import annotations

import mmap
import os
import tempfile
import weakref
from pathlib import Path

import numpy as np
import torch

from adafed.algebra.rows import Array
from adafed.algebra.stored import Storage, StoredRow, bytes_needed, encoded
from adafed.errors import AdafedError
from adafed.files import full_disk_in_a_sentence

PAGE = 4096
MAPPED = 2**26  # bytes mapped at a time


class TornRows(AdafedError):
    """The rows are not those that a checkpoint names."""


class PlacedRow(StoredRow):
    """A row of a file, with its place there and the sum of its bytes as numbers: after a power cut a file may hold what
    it held before."""

    place: int
    total: int


class RowFile:
    """Equal places for rows of one length. `path` None makes a temporary file, which nobody else can see."""

    def __init__(self, path: Path | None, length: int, storage: Storage) -> None:
        self.path, self.length, self.storage = path, length, storage
        self.bytes = bytes_needed(length, storage)
        self._stride = -(-self.bytes // PAGE) * PAGE
        self._together = max(MAPPED // self._stride, 1)  # places in one map
        self._maps: list[Array] = []
        self._free: set[int] = set()
        self._places = 0
        with full_disk_in_a_sentence(Path(path or tempfile.gettempdir())):
            if path is None:
                self._file = tempfile.TemporaryFile(prefix="adafed-")  # noqa: SIM115  # open as long as its maps
            else:
                self._file = path.open("r+b" if path.exists() else "w+b")

    def add(self, vector: Array) -> PlacedRow:
        if not self._free:
            self._free.add(self._places)
            self._places += 1
        place = min(self._free)
        self._free.remove(place)
        raw = np.empty(self.bytes, np.uint8)
        encoded(vector, self.storage, raw)
        with full_disk_in_a_sentence(Path(self.path or tempfile.gettempdir())):
            self._grow(place)
            left, at = memoryview(raw.data), place * self._stride
            while len(left):  # not through the map, where a full disk is a signal instead of an error
                count = os.pwrite(self._file.fileno(), left, at)
                left, at = left[count:], at + count
        return self._row(place, _total(raw))

    def find(self, named: list[tuple[int, int]]) -> list[PlacedRow]:
        """The rows that a saved state names, by place and total."""
        size = os.fstat(self._file.fileno()).st_size
        rows = []
        for place, total in named:
            if place < 0 or (place + 1) * self._stride > size:
                raise TornRows(f"{self.path} is shorter than its checkpoint says; restore it, or begin the run again")
            self._grow(place)
            rows.append(self._row(place, total))
            if _total(rows[-1].raw) != total:
                raise TornRows(f"{self.path} holds another update than its checkpoint says; restore it, or begin again")
        self.hold([place for place, _ in named])
        return rows

    def hold(self, places: list[int]) -> None:
        """These places are taken."""
        most = max([self._places, *(place + 1 for place in places)])
        self._free |= set(range(self._places, most))
        self._places = most
        self._free -= set(places)

    def release(self, places: list[int]) -> None:
        self._free |= set(places)

    def sync(self) -> None:
        """Wait for the disk."""
        with full_disk_in_a_sentence(Path(self.path or tempfile.gettempdir())):
            os.fsync(self._file.fileno())

    def _row(self, place: int, total: int) -> PlacedRow:
        index = place % self._together
        start = index * self._stride
        row = PlacedRow(self._maps[place // self._together][start : start + self.bytes], self.length, self.storage)
        row.place, row.total = place, total
        weakref.finalize(row, self._free.add, place).atexit = False
        return row

    def _grow(self, place: int) -> None:
        """Map the part of the file that holds this place, making the file longer if it ends before."""
        span = self._together * self._stride
        while len(self._maps) <= place // self._together:
            end = (len(self._maps) + 1) * span
            if os.fstat(self._file.fileno()).st_size < end:
                os.ftruncate(self._file.fileno(), end)
            found = mmap.mmap(self._file.fileno(), span, access=mmap.ACCESS_READ, offset=end - span)
            self._maps.append(np.frombuffer(found, np.uint8))


class RowStore:
    """Rows in memory while they take at most `budget` bytes together, the others in a file; all of them in the file
    at `path`, if there is one to come back to."""

    def __init__(self, storage: Storage = "float32", budget: int = 2**30, path: Path | None = None) -> None:
        self.storage, self.budget, self.path = storage, budget, path
        self._used = 0
        self._file: RowFile | None = None

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
        return self._file

    def sync(self) -> None:
        if self._file is not None and self.path is not None:
            self._file.sync()

    def _give_back(self, size: int) -> None:
        self._used -= size


def _total(raw: Array) -> int:
    whole = len(raw) // 8 * 8
    return int(raw[:whole].view(np.uint64).sum(dtype=np.uint64)) + int(raw[whole:].sum(dtype=np.uint64))
