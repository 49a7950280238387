"""The server's state on disk after every round: each file whole or not at all, the last two kept."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from time import monotonic

from safetensors import SafetensorError, safe_open

from adafed.errors import AdafedError
from adafed.files import full_disk_in_a_sentence, save_tensors
from adafed.server.row_files import RowStore, TornRows
from adafed.server.state import ServerState

KEPT = 2  # the newest, and one more should a power cut have torn it


class Checkpoints:
    """A folder of states. A file waits for the disk, which a power cut needs, at most every `durable_every` seconds."""

    def __init__(self, folder: str | Path, durable_every: float = 0.0, store: RowStore | None = None) -> None:
        self.folder = Path(folder)
        self._store = store
        self._alive: list[ServerState] = []  # the states of the files: what they remember must not be overwritten
        self._durable_every = durable_every
        self._last_durable = monotonic()
        with full_disk_in_a_sentence(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
        self._there: list[Path] | None = None  # looked up once: nobody else writes here

    def newest(self) -> ServerState | None:
        """The newest whole one; None where there are no files at all."""
        there = self.files()
        torn: AdafedError | None = None
        for file in reversed(there):
            try:
                state = self._read(file)
                self._alive = [*self._before(file), state]
                return state
            except TornRows as error:
                torn = error
                continue
            except (SafetensorError, ValueError, KeyError):
                continue  # torn by a power cut: the one before it is whole, and its round is written again
            except OSError as error:
                raise AdafedError(f"{file} cannot be read: {error.strerror or error}; nothing was changed") from None
        if torn is not None:
            raise torn
        if there:
            raise AdafedError(f"no checkpoint in {self.folder} is whole; move the run away to begin again")
        return None

    def _before(self, newest: Path) -> list[ServerState]:
        """The state of the file before, if it is whole: a power cut may yet send us back to it."""
        for file in reversed([file for file in self.files() if file < newest]):
            with suppress(SafetensorError, ValueError, KeyError, OSError, AdafedError):
                return [self._read(file)]
        return []

    def _read(self, file: Path) -> ServerState:
        with safe_open(file, framework="pt") as content:
            tensors = {name: content.get_tensor(name) for name in content.keys()}  # noqa: SIM118  # not a dict
            return ServerState.unpacked(tensors, content.metadata()["state"], self._store)

    def last_round(self) -> int:
        """Of the newest, whole or not; 0 where there is none."""
        return max((int(file.stem.removeprefix("round-")) for file in self.files()), default=0)

    def add(self, state: ServerState) -> None:
        tensors, numbers = state.packed()
        file = self.folder / f"round-{state.round:08d}.safetensors"
        now = monotonic()
        durable = now - self._last_durable >= self._durable_every
        if durable and self._store is not None:
            self._store.sync()
        save_tensors(file, tensors, {"state": numbers}, durable=durable)
        self._last_durable = now if durable else self._last_durable
        there = self.files() if self._there is None else [*(one for one in self._there if one != file), file]
        for old in there[:-KEPT]:
            old.unlink(missing_ok=True)
        self._there = there[-KEPT:]
        self._alive = [*self._alive, state][-KEPT:]

    def files(self) -> list[Path]:
        return sorted(self.folder.glob(f"round-{'[0-9]' * 8}.safetensors"))
