"""Where Ditto's personal model lives on a node."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import torch
from flwr.app import Array, ArrayRecord, Context, MetricRecord
from safetensors.torch import load_file

from adafed.engines.station import Personal
from adafed.files import save_tensors


class PersonalModel:
    """Ditto's model of one client. It lives in Flower's `Context.state`, which never leaves the node.

    That state ends with the run. A node that is given a `personal-dir` also keeps a file, so that a server which starts
    again finds the clients' models as of its own last round.
    """

    def __init__(self, context: Context, client: int, last: int, folder: Any) -> None:
        self.state = context.state
        self.client = client
        self.last = last
        self.key = f"personal:{client}"
        self.kept = Path(str(folder)) if folder else None
        self.restarted = False
        self._target: Path | None = None

    def __enter__(self) -> PersonalModel:
        self._scratch = tempfile.TemporaryDirectory(prefix="adafed-")
        self.folder = self.kept or Path(self._scratch.name)
        self.folder.mkdir(parents=True, exist_ok=True)
        return self

    def __exit__(self, failed: object, *_: object) -> None:
        if failed is None and self._target is not None:
            self.state[self.key] = ArrayRecord({"personal": Array(load_file(self._target)["personal"].numpy())})
            self.state[f"{self.key}:round"] = MetricRecord({"round": self._round})
            for file in self.folder.glob(f"{self.client}-*.safetensors"):
                if int(file.stem.partition("-")[2]) < self.last:
                    file.unlink(missing_ok=True)
        self._scratch.cleanup()

    def source(self) -> str | None:
        """A file with the model as of the server's last round with this client; None for the first model."""
        if self.last == 0:
            return None
        file = self._file(self.last)
        remembered = self.state.metric_records.get(f"{self.key}:round", MetricRecord()).get("round")
        if file.exists() and remembered != self.last:
            return str(file)
        if self.key in self.state.array_records:
            own = torch.from_numpy(self.state.array_records[self.key]["personal"].numpy())
            save_tensors(file, {"personal": own})
            return str(file)
        self.restarted = True
        return None

    def moved_in(self, round: int) -> Personal:
        self._round, self._target = round, self._file(round)
        return Personal(self.source(), str(self._target))

    def _file(self, round: int) -> Path:
        return self.folder / f"{self.client}-{round}.safetensors"
