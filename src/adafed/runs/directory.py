"""The run directory: what a run leaves behind, written so that a process killed at any moment loses at most a round.

    config.toml        the configuration, complete
    run.json           the directory's format, versions, seeds, data checksum, how many clients are trained together
    labels.json        how many training samples of each label every client holds, where that is known
    rounds.sqlite      a row a round, a row a participant, a row a client and evaluation
    checkpoints/       the last two states of the server, safetensors, and the last that waited for the disk
    clients/           what each client keeps between rounds (Ditto's models, SCAFFOLD's controls), a file each
    memory.rows        the updates that the server remembers, where it does; the checkpoints say whose is where
    model.safetensors  the final global model, by parameter name

A round's rows are committed first and its checkpoint renamed into place last. Whatever lies beyond the newest
checkpoint is therefore from a round that did not end, and is removed when the run goes on.

A power cut takes what was not waited for (fsync). The first checkpoint is waited for, then one every half minute, each
after the rows, the remembered updates and the clients' files that it needs; all of them stay until the next one is on
the disk. So a power cut costs the rounds since, and never the run.
"""

from __future__ import annotations

import fcntl
import json
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from adafed.config.configuration import Config
from adafed.config.loading import load_kept
from adafed.data.base import Federation
from adafed.data.labels import label_counts
from adafed.errors import AdafedError
from adafed.files import full_disk_in_a_sentence, on_disk, save_tensors, write_whole
from adafed.rounds.records import Evaluation, RoundRecord
from adafed.runs.checkpoints import Checkpoints, Unfit, any_state
from adafed.runs.description import FORMAT, fingerprint_of, read_facts, require_same, versions
from adafed.runs.store import Store
from adafed.runs.tracking import Tracking, tracking
from adafed.server.row_files import RowStore
from adafed.server.state import ServerState
from adafed.training.flat_module import FlatModule

DURABLE_EVERY = 30.0  # seconds between checkpoints that wait for the disk
OWN = ("config.toml", "rounds.sqlite", "model.safetensors")  # files a new run would take the place of
LABELS, MEMORY = "labels.json", "memory.rows"
CLIENTS, BEFORE = "clients", "personal"  # the folder of what clients keep, and its name in version 0.1
KEPT = re.compile(r"\d+-\d+\.safetensors")
PARTIAL = re.compile(
    r"\.((run|labels|track)\.json|report\.html|config\.toml|(model|round-\d+|\d+-\d+|last-\d+)\.safetensors)\.\d+\.partial"
)


class RunDirectory:
    """One run's directory, or a stand-in that keeps nothing (`path` is then a temporary folder or None)."""

    def __init__(self, path: Path | None, config: Config) -> None:
        self.path = path
        self.config = config
        self.store: Store | None = None
        self._lock: IO[str] | None = None
        self._scratch: tempfile.TemporaryDirectory[str] | None = None
        self._checkpoints: Checkpoints | None = None
        self._clients = path / CLIENTS if path else None
        section = config.memory
        place = path / MEMORY if path else None
        self.rows = RowStore(section.storage, section.budget_mb * 2**20, place, section.sketch)
        self._named: dict[str, int] = {}  # the clients' files that the newest checkpoint names
        self._track = Tracking({})
        self._superseded: list[Path] = []  # and those that only the one before it does
        self._on_disk: set[Path] = set()  # those that the last checkpoint needs that waited for the disk
        self._released: list[Path] = []  # and those among them that nothing newer needs

    @classmethod
    def opened(
        cls, path: str | Path | None, config: Config, federation: Federation, *, grouped: int, engine: str = "local"
    ) -> RunDirectory:
        """Make the directory, or take up the one that is there if it belongs to the same experiment."""
        directory = cls(None if path is None else Path(path), config)
        if directory.path is None:
            if config.keeps:  # what clients keep is too much for memory
                directory._scratch = tempfile.TemporaryDirectory(prefix="adafed-")
                directory._clients = Path(directory._scratch.name)
            return directory
        directory._checkpoints = Checkpoints(directory.path / "checkpoints", DURABLE_EVERY, directory.rows)
        directory._take_lock()
        try:
            with full_disk_in_a_sentence(directory.path):
                if (directory.path / BEFORE).is_dir() and not (directory.path / CLIENTS).exists():
                    (directory.path / BEFORE).rename(directory.path / CLIENTS)
                (directory.path / CLIENTS).mkdir(exist_ok=True)
            directory._describe(federation, grouped, engine)
            if any(directory.path.glob("checkpoints/*")) and not (directory.path / "rounds.sqlite").exists():
                raise AdafedError(
                    f"{directory.path} holds checkpoints but no rounds.sqlite; restore it or choose another directory"
                )
            directory._note_labels(federation)
            directory.store = Store(directory.path / "rounds.sqlite")
        except BaseException:
            directory.close()
            raise
        return directory

    def restored(self, unfit: Unfit = any_state) -> ServerState | None:
        """The newest whole checkpoint that fits; rows and files of later rounds are removed. None for a new run.

        The configuration is written here, when all that could speak against going on has been looked at.
        """
        if self.path is None:
            self._track = tracking(self.config, None, 0)
            return None
        assert self.store is not None
        assert self._checkpoints is not None
        rows, file = self.store.last_round(), self.store.path

        def cannot_be(state: ServerState) -> str | None:
            ahead = f"{file} holds {rows} rounds and the checkpoint is of round {state.round}; restore the file"
            return unfit(state) or (ahead if state.round > rows else None)

        state = self._checkpoints.newest(cannot_be)
        if state is None and rows > 1:
            raise AdafedError(
                f"{self.path} holds {rows} rounds and no checkpoint to go on from; choose another directory"
            )
        if state:  # before anything goes that an older one needs
            self._wait_for_disk(state)
            self._checkpoints.settle(state)
        if state and state.round < self.config.rounds:
            self._note_resumed(state.round)
            self._forget_end(state.round)
        write_whole(self.path / "config.toml", self.config.completed().to_toml().encode(), durable=True)
        self.store.forget_after(state.round if state else 0)
        self._sweep(state)
        self._named = state.kept if state else {}
        self._track = tracking(self.config, self.path, state.round if state else 0)
        return state

    def kept(self, client: int, round: int) -> Path:
        """What a client keeps as of a round. Each round writes a new file, so a killed one leaves the old."""
        assert self._clients is not None
        return self._clients / f"{client}-{round}.safetensors"

    def last_model(self, client: int) -> Path:
        """A client's own model after the last round, where it made one then."""
        assert self._clients is not None
        return self._clients / f"last-{client}.safetensors"

    def save(self, record: RoundRecord, state: ServerState) -> None:
        """Rows first, checkpoint last."""
        if self.path is not None:
            assert self.store is not None
            assert self._checkpoints is not None
            self.store.add(record)
            if self._checkpoints.add(state, lambda: self._wait_for_disk(state)):
                self._forget_released(state)
        if self._clients is not None and self.config.keeps:
            self._drop_old_kept(state)
            if any(one.dropped for one in record.participants):
                self._drop_unnamed(state)
        self._track.add(record)

    def evaluated(self, round: int) -> list[tuple[str, bool]]:
        """Which evaluations of a round there are: the part, and whether with personal models."""
        found = self.store.evaluations(round) if self.store is not None else []
        return [(one.part, one.personal) for one in found]

    def add_evaluations(self, round: int, evaluations: Sequence[Evaluation]) -> None:
        if self.store is not None and evaluations:
            self.store.add_evaluations(round, evaluations)

    def finish(self, model: FlatModule, state: ServerState) -> None:
        """The final model under its parameters' names, for whoever wants to use it."""
        self._track.close()
        if self.path is None:
            return
        assert self._checkpoints is not None
        self._wait_for_disk(state)
        for file in self._clients.glob("last-*.safetensors") if self._clients else ():
            on_disk(file)
        self._checkpoints.settle(state)
        self._checkpoints.only_newest()
        self._forget_superseded()
        self._forget_released(state)
        model.receive(state.parameters)
        tensors = {name: value.detach().clone() for name, value in model.module.state_dict().items()}
        save_tensors(self.path / "model.safetensors", tensors, {"round": str(state.round)}, durable=True)

    def close(self) -> None:
        self._track.close(whole=False)
        if self.store is not None:
            self.store.close()
            self.store = None
        if self._lock is not None:
            self._lock.close()
            self._lock = None
        self.rows.close()
        if self._scratch is not None:
            self._scratch.cleanup()

    def _take_lock(self) -> None:
        assert self.path is not None
        with full_disk_in_a_sentence(self.path):
            self._lock = (self.path / "lock").open("a")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._lock.close()
            self._lock = None
            raise AdafedError(
                f"{self.path} is in use by another process; wait for it to end or choose another directory"
            ) from None

    def _describe(self, federation: Federation, grouped: int, engine: str) -> None:
        """Write what the run is, or check that the directory holds the same run."""
        assert self.path is not None
        facts: dict[str, Any] = {
            "data": {"name": federation.name, "clients": len(federation.ids), "checksum": federation.checksum},
            "seeds": vars(self.config.derived_seeds()),
            "trained_together": grouped,
            "engine": engine,
        }
        described = self.path / "run.json"
        if described.exists() and (self.path / "config.toml").exists():
            before = read_facts(described)
            self._require_same_facts(before, facts)
            fingerprint = before.get("fingerprint")  # of its beginning: a later adafed may describe the same otherwise
        elif any(self.path.glob("checkpoints/*")):
            lost = "run.json" if (self.path / "config.toml").exists() else "config.toml"
            raise AdafedError(f"{self.path} holds checkpoints but no {lost}; restore it or choose another directory")
        elif not described.exists() and (foreign := [name for name in OWN if (self.path / name).exists()]):
            raise AdafedError(f"{self.path} holds a {foreign[0]} that is no run's; choose another directory")
        else:
            fingerprint = fingerprint_of(self.config, facts)
            told = {"format": FORMAT} | facts | {"fingerprint": fingerprint, "versions": versions()}
            write_whole(described, json.dumps(told, indent=2).encode(), durable=True)
        assert self._checkpoints is not None
        self._checkpoints.fingerprint = fingerprint

    def _note_labels(self, federation: Federation) -> None:
        assert self.path is not None
        if (self.path / LABELS).exists():
            return
        try:
            counts = label_counts(federation)
        except AdafedError:  # a client that cannot be read: whoever trains it will say so
            return
        if counts is None:
            return
        content = {"format": 1, "part": "train", "labels": counts}
        write_whole(self.path / LABELS, json.dumps(content, separators=(",", ":")).encode(), durable=True)

    def _note_resumed(self, round: int) -> None:
        """After which rounds the run was taken up again, for whoever judges it later."""
        assert self.path is not None
        facts = read_facts(self.path / "run.json")
        before = facts.get("resumed", [])
        told = facts | {"resumed": [*(before if isinstance(before, list) else []), round]}
        write_whole(self.path / "run.json", json.dumps(told, indent=2).encode(), durable=True)

    def _forget_end(self, round: int) -> None:
        """What was measured because a round was the run's last, where the run is prolonged past it."""
        assert self.path is not None
        assert self.store is not None
        if not (self.path / "config.toml").exists() or load_kept(self.path).rounds != round:
            return
        asked, parts = self.config.evaluation, self.config.parts
        needs = parts.rule.needs.union(*(guard.needs for guard in parts.guards))
        due = asked.improvement_every and round % asked.improvement_every == 0
        rho = not due and self.config.server.step != "safe"  # which knows it after every round
        self.store.forget_end(
            round,
            evaluations=not asked.every or round % asked.every > 0,
            improvement=rho,
            before=rho and self.config.server.loss != "before" and "accuracies" not in needs,
        )

    def _require_same_facts(self, before: dict[str, Any], now: dict[str, Any]) -> None:
        """Nothing may have changed that the bits depend on."""
        assert self.path is not None
        assert self._checkpoints is not None
        require_same(self.path, load_kept(self.path), self.config)
        was, is_ = before["data"]["checksum"], now["data"]["checksum"]
        if was != is_:
            raise AdafedError(
                f"{self.path} was begun on other data (checksum {was[:12]}, now {is_[:12]}): the data changed, or what "
                "config.toml there says of the data, their partition or the seed; restore that or start a new run"
            )
        # Flower's nodes keep what is their clients' to themselves and train one client at a time.
        engine = before.get("engine", now["engine"])
        if engine != now["engine"] and (self.config.keeps or before["trained_together"] != now["trained_together"]):
            raise AdafedError(f"{self.path} was begun with --engine {engine}; go on with the same")
        done = self._checkpoints.last_round()
        if done > self.config.rounds:
            raise AdafedError(
                f"{self.path} holds {done} rounds, more than the rounds = {self.config.rounds} asked for; "
                "ask for more, or choose another directory"
            )

    def _sweep(self, state: ServerState | None) -> None:
        """Remove what rounds that did not end have left, and nothing that a run does not write."""
        assert self.path is not None
        assert self._clients is not None
        current = {self.kept(int(c), r).name for c, r in state.kept.items()} if state else set()
        for file in self._clients.iterdir():
            if KEPT.fullmatch(file.name) and file.name not in current:
                file.unlink()
        for folder in (self.path, self.path / "checkpoints", self._clients):
            for file in folder.iterdir():
                if PARTIAL.fullmatch(file.name):
                    file.unlink()

    def _drop_old_kept(self, state: ServerState) -> None:
        """Files that neither of the two newest checkpoints names."""
        self._forget_superseded()
        old = ((client, self._named.get(client)) for client, last in state.kept.items() if last == state.round)
        self._superseded = [self.kept(int(client), last) for client, last in old if last is not None]
        self._named = state.kept

    def _drop_unnamed(self, state: ServerState) -> None:
        """What clients kept of this round whose updates were left out, where they go on from what they kept before."""
        assert self._clients is not None
        named = {self.kept(int(client), last) for client, last in state.kept.items() if last == state.round}
        for file in self._clients.glob(f"*-{state.round}.safetensors"):
            if KEPT.fullmatch(file.name) and file not in named:
                file.unlink()

    def _forget_superseded(self) -> None:
        for file in self._superseded:
            if file in self._on_disk:
                self._released.append(file)  # a power cut may yet send us back to it
            else:
                file.unlink(missing_ok=True)
        self._superseded = []

    def _wait_for_disk(self, state: ServerState) -> None:
        """For all that a checkpoint needs beside itself."""
        assert self.store is not None
        self.store.wait_for_disk()
        files = self._kept_files(state) - self._on_disk
        for file in files:
            on_disk(file)
        if files and self._clients is not None:
            on_disk(self._clients)
        self._on_disk = self._kept_files(state)

    def _forget_released(self, state: ServerState) -> None:
        """Clients' files that only the checkpoint needed that last waited for the disk before this one."""
        for file in set(self._released) - self._on_disk:
            file.unlink(missing_ok=True)
        self._released = []

    def _kept_files(self, state: ServerState) -> set[Path]:
        """Those here; Flower's nodes keep their own."""
        named = {self.kept(int(client), last) for client, last in state.kept.items()} if self._clients else set()
        return {file for file in named if file.exists()}
