"""The server's state on disk after every round, which Flower lacks: killed at any moment, it goes on where it was.

A run of an experiment keeps a whole run directory instead; this is for apps of the user's own.
"""

from __future__ import annotations

import fcntl
import gc
import os
import weakref
from pathlib import Path
from typing import Protocol

from adafed.errors import AdafedError
from adafed.files import full_disk_in_a_sentence
from adafed.rounds.records import RoundRecord
from adafed.runs.checkpoints import Checkpoints, Unfit, any_state
from adafed.server.row_files import RowStore
from adafed.server.state import ServerState

PARTIAL = f".round-{'[0-9]' * 8}.safetensors.*.partial"


class Keeper(Protocol):
    """Where rounds go. `RunDirectory` is one."""

    rows: RowStore  # where remembered updates go

    def restored(self, unfit: Unfit = any_state) -> ServerState | None: ...
    def save(self, record: RoundRecord, state: ServerState) -> None: ...


class StateKeeper:
    """A folder with the last states of one training run. A finished run's folder yields its final state.

    One server has the folder at a time: from its first look into it until `release`, and no longer than this object
    and its process live.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.rows = RowStore(path=self.folder / "memory.rows")
        self._checkpoints = Checkpoints(self.folder, store=self.rows)
        self._lock: weakref.finalize[[int, int], StateKeeper] | None = None

    def restored(self, unfit: Unfit = any_state) -> ServerState | None:
        self._take()
        return self._checkpoints.newest(unfit)

    def save(self, record: RoundRecord, state: ServerState) -> None:
        self._take()
        self._checkpoints.add(state)

    def release(self) -> None:
        """Others may have the folder; whoever restores or saves here takes it again."""
        if self._lock is not None:
            self._lock()
            self._lock = None

    def _take(self) -> None:
        """The folder, unless it is this keeper's already; and what is known of its files is looked up anew, for another
        server may have been there."""
        if self._lock is not None:
            return
        self.rows.close()
        self._checkpoints = Checkpoints(self.folder, store=self.rows)
        if not os.access(self.folder, os.W_OK):
            return  # a finished run's, to be read: nobody saves there
        descriptor = self._locked()
        self._lock = weakref.finalize(self, _give_back, descriptor, os.getpid())
        with full_disk_in_a_sentence(self.folder):
            for left in self.folder.glob(PARTIAL):  # by a server that was killed
                left.unlink(missing_ok=True)

    def _locked(self) -> int:
        file = self.folder / "lock"
        with full_disk_in_a_sentence(file):
            descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            try:
                if not _alone(descriptor):
                    gc.collect()  # a keeper of this process that nobody can reach any more may have it still
                    if not _alone(descriptor):
                        raise AdafedError(
                            f"{self.folder} is in use by another server; wait for it to end or choose another folder"
                        )
            except BaseException:
                os.close(descriptor)
                raise
        return descriptor


def _alone(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _give_back(descriptor: int, process: int) -> None:
    """Closing is not enough where a forked process, such as a loader's worker, has the descriptor too; and what such a
    one closes is not its to give back."""
    if os.getpid() == process:
        fcntl.flock(descriptor, fcntl.LOCK_UN)
    os.close(descriptor)
