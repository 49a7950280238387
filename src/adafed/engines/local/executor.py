"""Where units of work are done: in this process, or in worker processes with one torch thread each.

Results come back in the order of the units, whoever did them, and the units are formed before this module sees them:
the number of workers changes no bit.
"""

from __future__ import annotations

import ctypes
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch

from adafed.client_rules.base import Told
from adafed.config.sections import Config
from adafed.engines.local.messages import (
    Unit,
    decode,
    encode,
    reports_from_json,
    scores_from_json,
    unit_to_json,
)
from adafed.engines.local.shared_memory import SharedRows
from adafed.engines.station import Station, one_thread
from adafed.engines.units import AskUnit, MeasureUnit, Report, TrainUnit
from adafed.errors import AdafedError
from adafed.rounds.records import Scores

# What a step frees the next one asks for again. glibc would give it back to the system in between and have it fetched
# anew, page by page.
KEPT_MEMORY = {
    "MALLOC_TRIM_THRESHOLD_": str(2**30),
    "MALLOC_MMAP_THRESHOLD_": str(2**30),
    "MALLOC_TOP_PAD_": str(2**26),
}
AHEAD = 2  # units a worker holds at a time: it must not wait for the next one
AHEAD_BYTES = 2**15  # a message sent ahead must fit the socket's buffer, or both ends could wait to be read


class Executor(Protocol):
    """Trains, measures and asks. `updates` holds the rows that the last training wrote; `parameters` may be followed by
    the vectors that clients receive beside the model.

    Training is begun, and its reports are asked for when they are needed: whoever asks may do something else meanwhile,
    anything but measure and ask.
    """

    updates: SharedRows
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
    return Workers(config, station, updates, workers)


class InProcess:
    """Everything here, one unit after the other."""

    def __init__(self, station: Station, updates: SharedRows) -> None:
        self.station = station
        self.updates = updates
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


class Workers:
    """Worker processes, started once and kept for the run."""

    def __init__(self, config: Config, station: Station, updates: SharedRows, count: int) -> None:
        self.updates = updates
        self.processes = count
        self._received = SharedRows.create(1, station.visiting.received_width, budget=2**62)
        self._processes: list[subprocess.Popen[bytes]] = []
        self._connections: list[Connection] = []
        self._begun: _Work | None = None
        hello = {
            "config": config.to_dict(),
            "rows": updates.array.shape[0],
            "on_disk": updates.on_disk,
        }
        try:
            for _ in range(count):
                self._start(hello)
            for k, connection in enumerate(self._connections):
                answer = self._receive(k, "starting")
                if "error" in answer:
                    raise AdafedError(answer["error"])
                if answer["clients"] != len(station.federation.ids):
                    raise AdafedError(
                        f"data.name = {config.data.name!r} gave {answer['clients']} clients to a worker process and "
                        f"{len(station.federation.ids)} to this one; the data must be the same each time it is read"
                    )
                if answer["checksum"] not in (None, station.federation.checksum):
                    raise AdafedError(
                        f"data.name = {config.data.name!r} gave other samples to a worker process than to this one; "
                        "your function must return the same each time, so give its random numbers a fixed seed"
                    )
                assert connection.closed is False
        except BaseException:
            self.close()
            raise

    def begin(self, units: Sequence[TrainUnit], parameters: torch.Tensor) -> None:
        assert self._begun is None
        self._begun = self._handed(units, parameters)

    def reports(self) -> list[list[Report]]:
        assert self._begun is not None
        reports = [reports_from_json(one) for one in self._collected(self._begun)]
        self._begun = None
        self.updates.release()
        return reports

    def measure(self, units: Sequence[MeasureUnit], parameters: torch.Tensor) -> list[list[Scores]]:
        assert self._begun is None
        return [scores_from_json(one) for one in self._collected(self._handed(units, parameters))]

    def ask(self, units: Sequence[AskUnit], parameters: torch.Tensor) -> list[Told]:
        assert self._begun is None
        return self._collected(self._handed(units, parameters))

    def close(self) -> None:
        for connection in self._connections:
            connection.close()  # a worker that sees the end of its socket leaves
        if self._begun is not None:  # nobody will ask for what they are at
            for process in self._processes:
                process.kill()
        for process in self._processes:
            try:
                process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._connections, self._processes = [], []
        self.updates.close()
        self._received.close()

    def _start(self, hello: dict[str, Any]) -> None:
        here, there = socket.socketpair()
        descriptors = (there.fileno(), self.updates.descriptor, self._received.descriptor)
        path = os.pathsep.join([os.getcwd() if entry == "" else entry for entry in sys.path])
        threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
        self._processes.append(
            subprocess.Popen(
                [sys.executable, "-m", "adafed.engines.local.worker", str(there.fileno())],
                pass_fds=descriptors,
                env=KEPT_MEMORY | os.environ | threads | {"PYTHONPATH": path},
                start_new_session=True,  # Ctrl-C at the terminal is for the main process alone
            )
        )
        there.close()
        self._connections.append(Connection(here.detach()))
        content = hello | {"updates": self.updates.descriptor, "received": self._received.descriptor}
        self._connections[-1].send_bytes(encode(content))

    def _handed(self, units: Sequence[Unit], parameters: torch.Tensor) -> _Work:
        """The workers have their first units."""
        self._received.tensor[0, : len(parameters)].copy_(parameters)
        work = _Work(units, _Queue(units, len(self._connections)), [0] * len(self._connections))
        self._hand_apart(work.queue, work.held)
        for _ in range(AHEAD - 1):
            for k in range(len(work.held)):
                self._hand(k, work.queue, work.held)
        return work

    def _collected(self, work: _Work) -> list[Any]:
        """Everything done and answered, in the order of the units."""
        results: list[Any] = [None] * len(work.units)
        while any(work.held):
            busy = [self._connections[k] for k in range(len(work.held)) if work.held[k]]
            for ready in wait(busy):
                k = next(k for k, connection in enumerate(self._connections) if connection is ready)
                answer = self._receive(k, "working")
                work.held[k] -= 1
                _raise_failure(answer, work.units)
                results[answer["number"]] = answer["results"]
                self._hand(k, work.queue, work.held)
        return results

    def _hand_apart(self, queue: _Queue, held: list[int]) -> None:
        """The first units, with each worker bound to a core of its own while they are handed out.

        The scheduler may wake two workers on one core and leave the other idle until its next tick, four milliseconds
        that a round of small clients takes in all. Where each goes afterwards is the scheduler's choice again: other
        runs may be on the same cores. The core this process is on comes last, as its worker may push it aside.
        """
        cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
        order = list(range(len(held)))
        if 1 < len(held) <= len(cores):
            here = _core()
            order.sort(key=lambda k: cores[k] == here)
            self._bind([{core} for core in cores])
        for k in order:
            self._hand(k, queue, held)
        if 1 < len(held) <= len(cores):
            self._bind([set(cores)] * len(held))

    def _bind(self, cores: Sequence[set[int]]) -> None:
        with suppress(
            OSError
        ):  # a worker that is gone will be missed soon; where binding is forbidden, nothing is lost
            for process, its in zip(self._processes, cores, strict=False):
                os.sched_setaffinity(process.pid, its)

    def _hand(self, worker: int, queue: _Queue, held: list[int]) -> None:
        """The next unit, unless the worker is busy and one that is free could take it soon."""
        if not len(queue) or (held[worker] and len(queue) < len(held)):
            return
        number, message = queue.pop(worker)
        if held[worker] and len(message) > AHEAD_BYTES:
            queue.put_back(worker, number)
            return
        try:
            self._connections[worker].send_bytes(message)
        except (BrokenPipeError, ConnectionResetError):
            self._lost(worker, "working")
        held[worker] += 1

    def _receive(self, worker: int, doing: str) -> dict[str, Any]:
        try:
            return decode(self._connections[worker].recv_bytes())
        except (EOFError, ConnectionResetError):
            self._lost(worker, doing)
            raise AssertionError("unreachable") from None

    def _lost(self, worker: int, doing: str) -> None:
        code = self._processes[worker].wait()
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        hint = "; the system may have run out of memory" if code == -9 else ""
        raise AdafedError(
            f"worker {worker} ended while {doing} ({how}){hint}; "
            "finished rounds are saved, so the run can be resumed, with fewer workers if memory is short"
        )


class _Queue:
    """Units that wait. A client goes to the same worker each time, which has its samples at hand, unless that one is
    behind the others."""

    def __init__(self, units: Sequence[Unit], workers: int) -> None:
        self._units = units
        self._own: list[list[int]] = [[] for _ in range(workers)]
        for number in range(len(units) - 1, -1, -1):
            self._own[_clients(units[number])[0] % workers].append(number)
        # A round's first messages are made before any is sent: its sender may have to wait for a core after the first.
        self._made = {number: self._message(number) for own in self._own for number in own[-1:]}

    def __len__(self) -> int:
        return sum(map(len, self._own))

    def pop(self, worker: int) -> tuple[int, bytes]:
        own = self._own[worker] or max(self._own, key=len)
        number = own.pop()
        return number, self._made.pop(number, None) or self._message(number)

    def _message(self, number: int) -> bytes:
        return encode({"number": number, "unit": unit_to_json(self._units[number])})

    def put_back(self, worker: int, number: int) -> None:
        self._own[worker].append(number)


class _Work(NamedTuple):
    """Units under way: those that wait, and how many each worker holds."""

    units: Sequence[Unit]
    queue: _Queue
    held: list[int]


def _core() -> int:
    """The core this thread is on, or -1 where the system does not say."""
    try:
        return int(ctypes.CDLL(None).sched_getcpu())
    except (OSError, AttributeError):
        return -1


def _clients(unit: Unit) -> Sequence[int]:
    if isinstance(unit, AskUnit):
        return [unit.client]
    return unit.clients if isinstance(unit, MeasureUnit) else [work.client for work in unit.work]


def _raise_failure(answer: dict[str, Any], units: Sequence[Unit]) -> None:
    if "error" in answer:
        raise AdafedError(answer["error"])
    if "crash" in answer:
        told = ", ".join(map(str, _clients(units[answer["number"]])))
        raise RuntimeError(f"a worker failed on client {told}:\n{answer['crash']}")
