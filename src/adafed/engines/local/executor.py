"""Where units of work are done: in this process, or in worker processes with one torch thread each (worker_pool.py).

Results come back in the order of the units, whoever did them, and the units are formed before this module sees them:
the number of workers changes no bit.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import torch

from adafed.client_rules.base import Told
from adafed.config.configuration import Config
from adafed.engines.local.shared_memory import SharedRows
from adafed.engines.local.worker_pool import WorkerPool
from adafed.engines.station import Station, one_thread
from adafed.engines.units import AskUnit, MeasureUnit, Report, TrainUnit
from adafed.rounds.records import Scores


class Executor(Protocol):
    """Trains, measures and asks. `updates` holds the rows that the last training wrote; `parameters` may be followed by
    the vectors that clients receive beside the model.

    Training is begun, and its reports are asked for when they are needed: whoever asks may do something else meanwhile,
    anything but measure and ask. `lost` are the clients of the last training whose processes ended, and how.
    """

    updates: SharedRows
    lost: dict[int, str]
    processes: int  # how many cores are free while nobody trains

    def begin(self, units: Sequence[TrainUnit], parameters: torch.Tensor) -> None: ...
    def reports(self) -> list[list[Report]]: ...
    def measure(self, units: Sequence[MeasureUnit], parameters: torch.Tensor) -> list[list[Scores]]: ...
    def ask(self, units: Sequence[AskUnit], parameters: torch.Tensor) -> list[Told]: ...
    def close(self) -> None: ...


def open_executor(config: Config, station: Station, rows: int, directory: Path | None, *, shipped: bool) -> Executor:
    """`shipped` says that workers can build the federation from the configuration; one made in Python stays here."""
    budget = config.run.updates_mb * 2**20
    updates = SharedRows.create(rows, station.visiting.width, budget=budget, directory=directory)
    workers = (os.cpu_count() or 1) if config.run.workers == "auto" else config.run.workers
    if workers == 0 or not shipped or (config.run.workers == "auto" and config.run.device != "cpu"):
        return InProcess(station, updates)
    return WorkerPool(config, station, updates, workers)


class InProcess:
    """Everything here, one unit after the other."""

    def __init__(self, station: Station, updates: SharedRows) -> None:
        self.station = station
        self.updates = updates
        self.lost: dict[int, str] = {}
        self.processes = torch.get_num_threads()
        self._begun: tuple[Sequence[TrainUnit], torch.Tensor] | None = None

    def begin(self, units: Sequence[TrainUnit], parameters: torch.Tensor) -> None:
        self._begun = units, parameters

    def reports(self) -> list[list[Report]]:
        assert self._begun is not None
        (units, parameters), self._begun = self._begun, None
        reports = []
        with one_thread():
            for unit in units:
                reports.append(self.station.train(unit, parameters, self.updates.tensor))
                self.updates.release()
        return reports

    def measure(self, units: Sequence[MeasureUnit], parameters: torch.Tensor) -> list[list[Scores]]:
        with one_thread():
            return [self.station.measure(unit, parameters) for unit in units]

    def ask(self, units: Sequence[AskUnit], parameters: torch.Tensor) -> list[Told]:
        with one_thread():
            return [self.station.ask(unit, parameters) for unit in units]

    def close(self) -> None:
        self.updates.close()
