"""The server's state on disk after every round, which Flower lacks: killed at any moment, it goes on where it was.

A run of an experiment keeps a whole run directory instead; this is for apps of the user's own.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from safetensors import SafetensorError, safe_open

from adafed.files import full_disk_in_a_sentence, save_tensors
from adafed.records import RoundRecord
from adafed.server import ServerState

KEPT = 2  # the newest, and one more should a power cut have torn it


class Keeper(Protocol):
    """Where rounds go. `RunDirectory` is one."""

    def restored(self) -> ServerState | None: ...
    def save(self, record: RoundRecord, state: ServerState) -> None: ...


class Checkpoints:
    """A folder with the last states of one training run. A finished run's folder yields its final state."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        with full_disk_in_a_sentence(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)

    def restored(self) -> ServerState | None:
        for file in reversed(self._files()):
            try:
                with safe_open(file, framework="pt") as content:
                    tensors = {name: content.get_tensor(name) for name in content.keys()}  # noqa: SIM118  # not a dict
                    return ServerState.unpacked(tensors, content.metadata()["state"])
            except (SafetensorError, OSError, ValueError, KeyError):
                file.unlink()  # torn by a power cut: the one before it is whole
        return None

    def save(self, record: RoundRecord, state: ServerState) -> None:
        tensors, numbers = state.packed()
        file = self.folder / f"round-{state.round:08d}.safetensors"
        save_tensors(file, tensors, {"state": numbers}, durable=True)
        for old in self._files()[:-KEPT]:
            old.unlink()

    def _files(self) -> list[Path]:
        return sorted(self.folder.glob("round-*.safetensors"))
