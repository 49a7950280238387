"""Where what a client keeps between rounds lives on a node: Ditto's personal model, SCAFFOLD's control variate."""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
from flwr.app import Array, ArrayRecord, Context
from safetensors.torch import load_file

from adafed.engines.units import KeptFile
from adafed.files import save_tensors


class KeptOnNode:
    """What one client keeps. It lives in Flower's `Context.state`, which never leaves the node.

    That state ends with the run. A node that is given a `client-dir` also keeps a file, so that a server which starts
    again finds what the clients kept as of its own last round.
    """

    def __init__(self, context: Context, client: int, last: int, folder: str | None) -> None:
        self.state = context.state
        self.client = client
        self.last = last
        self.folder = Path(folder) if folder else None
        self.restarted = False
        self._target: Path | None = None
        self._last: Path | None = None
        self._round = 0

    def __enter__(self) -> KeptOnNode:
        self._scratch = tempfile.TemporaryDirectory(prefix="adafed-")
        self.where = self.folder or Path(self._scratch.name)
        self.where.mkdir(parents=True, exist_ok=True)
        for name in (f".{self.client}-*.partial", f".last-{self.client}.*.partial"):
            for left in self.where.glob(name):  # by a node that was killed; a client is one process's at a time
                left.unlink(missing_ok=True)
        return self

    def __exit__(self, failed: object, *_: object) -> None:
        if failed is None and self._target is not None:
            tensors = load_file(self._target)
            self._forget({self.last, self._round})
            record = ArrayRecord({name: Array(one.numpy()) for name, one in tensors.items()})
            self.state[self._key(self._round)] = record
            for file in self.where.glob(f"{self.client}-*.safetensors"):
                if int(file.stem.partition("-")[2]) < self.last:
                    file.unlink(missing_ok=True)
        if failed is None and self._last is not None:
            self.state.array_records.pop(f"last:{self.client}", None)
            if self._last.exists():
                made = load_file(self._last)
                self.state[f"last:{self.client}"] = ArrayRecord(
                    {name: Array(one.numpy()) for name, one in made.items()}
                )
        self._scratch.cleanup()

    def file(self, round: int | None = None) -> KeptFile:
        """To be read as of the server's last round with this client and, in a `round` of training, written."""
        if round is not None:
            self._round, self._target = round, self._file(round)
        return KeptFile(self._source(), None if self._target is None else str(self._target))

    def own(self, last: bool, made: bool) -> KeptFile:
        """Where the client's own model is. After the `last` round it may be made anew, and is then found under `last`,
        in `Context.state` and, with a folder, as a file."""
        if not last:
            return self.file()
        file = self.where / f"last-{self.client}.safetensors"
        if not made:
            file.unlink(missing_ok=True)
            self._last = file
            return KeptFile(self._source(), str(file))
        key = f"last:{self.client}"
        if key in self.state.array_records and not file.exists():
            arrays = self.state.array_records[key]
            save_tensors(file, {name: torch.from_numpy(array.numpy()) for name, array in arrays.items()})
        return KeptFile(str(file)) if file.exists() else self.file()

    def _source(self) -> str | None:
        if self.last == 0:
            return None
        file = self._file(self.last)
        if file.exists():
            return str(file)
        if self._key(self.last) in self.state.array_records:
            arrays = self.state.array_records[self._key(self.last)]
            save_tensors(file, {name: torch.from_numpy(array.numpy()) for name, array in arrays.items()})
            return str(file)
        self.restarted = True
        return None

    def _key(self, round: int) -> str:
        return f"kept:{self.client}:{round}"

    def _forget(self, but: set[int]) -> None:
        """All versions but the one that the server goes by and the one it may go by next: a reply can be lost."""
        for key in [key for key in self.state.array_records if key.startswith(f"kept:{self.client}:")]:
            if int(key.rpartition(":")[2]) not in but:
                del self.state[key]

    def _file(self, round: int) -> Path:
        return self.where / f"{self.client}-{round}.safetensors"
