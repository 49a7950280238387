"""Memory that several processes see: anonymous where it fits the budget, else an unlinked file.

Neither has a name, so nothing is left behind by a process that is killed.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from pathlib import Path

import numpy as np
import torch

from adafed.algebra.rows import FileRows
from adafed.errors import AdafedError
from adafed.files import full_disk_in_a_sentence


class SharedRows:
    """A float32 matrix in shared memory. `descriptor` is handed to other processes, which attach to it."""

    def __init__(self, rows: int, width: int, descriptor: int, *, on_disk: bool) -> None:
        self.descriptor = descriptor
        self.on_disk = on_disk
        size = max(rows * width * 4, 1)
        self._map = mmap.mmap(descriptor, size)
        self.array = np.frombuffer(self._map, dtype=np.float32, count=rows * width).reshape(rows, width)
        self.tensor = torch.from_numpy(self.array)

    def rows(self, count: int, length: int) -> torch.Tensor | FileRows:
        """The first rows and columns, for reading; those of a file are read from it block by block."""
        if not self.on_disk:
            return self.tensor[:count, :length]
        rows = self.array[:count, :length].view(FileRows)
        rows.descriptor, rows.row_bytes = self.descriptor, self.array.strides[0]
        return rows

    @classmethod
    def create(cls, rows: int, width: int, *, budget: int, directory: Path | None = None) -> SharedRows:
        size = max(rows * width * 4, 1)
        if size <= budget and hasattr(os, "memfd_create"):
            descriptor = os.memfd_create("adafed")
            os.ftruncate(descriptor, size)
            return cls(rows, width, descriptor, on_disk=False)
        where = directory or Path(tempfile.gettempdir())
        with full_disk_in_a_sentence(where):
            with tempfile.TemporaryFile(dir=where) as file:
                descriptor = os.dup(file.fileno())
            try:  # all of it now: a full disk found while writing through the map would kill the process
                os.posix_fallocate(descriptor, 0, size)
            except AttributeError:
                os.ftruncate(descriptor, size)
        return cls(rows, width, descriptor, on_disk=True)

    def release(self) -> None:
        """Give pages of a file back to the system; their content stays in the file."""
        if self.on_disk and hasattr(mmap, "MADV_DONTNEED"):
            self._map.madvise(mmap.MADV_DONTNEED)

    def close(self) -> None:
        """The memory itself goes when the last array over it does."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


def attach(rows: int, width: int, descriptor: int, *, on_disk: bool) -> SharedRows:
    try:
        return SharedRows(rows, width, descriptor, on_disk=on_disk)
    except (OSError, ValueError) as error:
        raise AdafedError(f"the shared memory of a run could not be attached: {error}") from None
