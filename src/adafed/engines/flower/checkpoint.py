"""The server's state on disk after every round, which Flower lacks: killed at any moment, it goes on where it was.

A run of an experiment keeps a whole run directory instead; this is for apps of the user's own.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from adafed.rounds.records import RoundRecord
from adafed.runs.checkpoints import Checkpoints, Unfit, any_state
from adafed.server.row_files import RowStore
from adafed.server.state import ServerState


class Keeper(Protocol):
    """Where rounds go. `RunDirectory` is one."""

    rows: RowStore  # where remembered updates go

    def restored(self, unfit: Unfit = any_state) -> ServerState | None: ...
    def save(self, record: RoundRecord, state: ServerState) -> None: ...


class StateKeeper:
    """A folder with the last states of one training run. A finished run's folder yields its final state."""

    def __init__(self, folder: str | Path) -> None:
        self.rows = RowStore(path=Path(folder) / "memory.rows")
        self._checkpoints = Checkpoints(folder, store=self.rows)

    def restored(self, unfit: Unfit = any_state) -> ServerState | None:
        return self._checkpoints.newest(unfit)

    def save(self, record: RoundRecord, state: ServerState) -> None:
        self._checkpoints.add(state)
