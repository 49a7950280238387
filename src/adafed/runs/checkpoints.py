"""The server's state on disk after every round: each file whole or not at all, the last two kept."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from time import monotonic

from safetensors import SafetensorError, safe_open

from adafed.errors import AdafedError
from adafed.files import full_disk_in_a_sentence, on_disk, save_tensors
from adafed.server.row_files import RowStore, TornRows
from adafed.server.saved import DamagedState, digest
from adafed.server.state import ServerState

KEPT = 2  # the newest, and one more should a power cut have torn it
Unfit = Callable[[ServerState], str | None]
"""Why a state cannot be this run's; None where it can."""


def any_state(state: ServerState) -> None:
    """Where nothing is known of the run but its files."""


class Checkpoints:
    """A folder of states. Waiting for the disk, which a power cut needs, takes time, so it is done for the first state
    and then every `durable_every` seconds; the last one that waited stays until another has.

    Every file has a digest of its content and the `fingerprint` of the run it is from, if the run has one. A file
    without a digest is an older version's, and is taken at its word.
    """

    def __init__(self, folder: str | Path, durable_every: float = 0.0, store: RowStore | None = None) -> None:
        self.folder = Path(folder)
        self._store = store
        self._alive: list[ServerState] = []  # the states of the files: what they remember must not be overwritten
        self._durable_every = durable_every
        self._last_durable = -math.inf
        self._durable: Path | None = None
        self._durable_memory: object = None  # what it remembers must not be overwritten either
        self.fingerprint: str | None = None
        with full_disk_in_a_sentence(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
        self._there: list[Path] | None = None  # looked up once: nobody else writes here

    def newest(self, unfit: Unfit = any_state) -> ServerState | None:
        """The newest that is whole and fits the run; None where there are no files at all."""
        there = self.files()
        torn: AdafedError | None = None
        why: str | None = None
        for file in reversed(there):
            try:
                state = self._read(file, unfit)
                self._alive = [*self._before(file, unfit), state]
                return state
            except TornRows as error:
                torn = error
                continue
            except DamagedState as error:
                why = why or f"{file.name}: {error}"
                continue
            except (SafetensorError, ValueError, KeyError):
                continue  # torn by a power cut: the one before it is whole, and its round is written again
            except OSError as error:
                raise AdafedError(f"{file} cannot be read: {error.strerror or error}; nothing was changed") from None
        if torn is not None:
            raise torn
        if why is not None:
            raise AdafedError(f"no checkpoint in {self.folder} is this run's ({why}); move the run away to begin again")
        if there:
            raise AdafedError(f"no checkpoint in {self.folder} is whole; move the run away to begin again")
        return None

    def _before(self, newest: Path, unfit: Unfit) -> list[ServerState]:
        """The state of the file before, if it is whole: a power cut may yet send us back to it."""
        for file in reversed([file for file in self.files() if file < newest]):
            with suppress(SafetensorError, ValueError, KeyError, OSError, AdafedError):
                return [self._read(file, unfit)]
        return []

    def _read(self, file: Path, unfit: Unfit) -> ServerState:
        with safe_open(file, framework="pt") as content:
            tensors = {name: content.get_tensor(name) for name in content.keys()}  # noqa: SIM118  # not a dict
            told = content.metadata() or {}
        if "state" not in told:
            raise DamagedState("it says nothing of a state")
        if told.get("run") != self.fingerprint:
            raise DamagedState("it is of another run")
        if told.get("digest", "" if self.fingerprint else None) not in (None, digest(tensors, told["state"])):
            raise DamagedState("its content has changed since it was written")
        state = ServerState.unpacked(tensors, told["state"], self._store)
        reason = unfit(state)
        if reason is None and state.round != _round(file):
            reason = f"it is of round {state.round}"
        if reason is not None:
            raise DamagedState(reason)
        return state

    def last_round(self) -> int:
        """Of the newest, whole or not; 0 where there is none."""
        return max(map(_round, self.files()), default=0)

    def add(self, state: ServerState, before: Callable[[], None] = lambda: None) -> bool:
        """Whether it waited for the disk; `before` does so for all that the state needs beside its file."""
        tensors, numbers = state.packed()
        file = self._file(state)
        durable = monotonic() - self._last_durable >= self._durable_every
        if durable:
            before()
            if self._store is not None:
                self._store.sync()
        told = {"state": numbers, "digest": digest(tensors, numbers)}
        if self.fingerprint is not None:
            told["run"] = self.fingerprint
        save_tensors(file, tensors, told, durable=durable)
        if durable:
            self._note_durable(state)
        there = self.files() if self._there is None else [*(one for one in self._there if one != file), file]
        self._there = [one for one in there if one in there[-KEPT:] or one == self._durable]
        for old in set(there) - set(self._there):
            old.unlink(missing_ok=True)
        self._alive = [*self._alive, state][-KEPT:]
        return durable

    def settle(self, state: ServerState) -> None:
        """The state, which is there already, waits for the disk."""
        if self._store is not None:
            self._store.sync()
        on_disk(self._file(state))
        on_disk(self.folder)
        self._note_durable(state)

    def only_newest(self) -> None:
        """Nothing but the newest two, both on the disk."""
        for file in self.files()[-KEPT:]:
            on_disk(file)
        for old in self.files()[:-KEPT]:
            old.unlink(missing_ok=True)
        self._there = None

    def _note_durable(self, state: ServerState) -> None:
        self._last_durable, self._durable, self._durable_memory = monotonic(), self._file(state), state.rule_state

    def _file(self, state: ServerState) -> Path:
        return self.folder / f"round-{state.round:08d}.safetensors"

    def files(self) -> list[Path]:
        return sorted(self.folder.glob(f"round-{'[0-9]' * 8}.safetensors"))


def _round(file: Path) -> int:
    return int(file.stem.removeprefix("round-"))
