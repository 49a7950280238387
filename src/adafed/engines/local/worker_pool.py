"""The worker processes of a run: handing out units, hearing the answers, and replacing a process that ends or hangs."""

from __future__ import annotations

import ctypes
import os
from collections import Counter, deque
from collections.abc import Sequence
from contextlib import suppress
from logging import getLogger
from multiprocessing.connection import Connection, wait
from pathlib import Path
from time import monotonic
from typing import Any

import torch

from adafed.client_rules.base import Told
from adafed.config.configuration import Config
from adafed.engines.local.messages import Unit, reports_from_json, scores_from_json
from adafed.engines.local.process import Gone, WorkerProcess, end_all
from adafed.engines.local.shared_memory import SharedRows
from adafed.engines.local.unit_queue import UnitQueue, clients_of
from adafed.engines.station import Station
from adafed.engines.units import AskUnit, MeasureUnit, Report, TrainUnit
from adafed.errors import AdafedError
from adafed.files import partial
from adafed.rounds.records import Scores

AHEAD = 2  # units a worker holds at a time: it must not wait for the next one
AHEAD_BYTES = 2**15  # a message sent ahead must fit the socket's buffer, or both ends could wait to be read
TRIES = 2  # of a unit, by as many processes
TICK = 1.0  # seconds between looks at workers that do not answer
A_WORD = 10.0  # seconds of silence of a worker that was stopped, before it is told
STOPPED = 60.0  # and before it is given up: it is not slow, it does nothing

log = getLogger("adafed")


class WorkerPool:
    """Worker processes, started once and kept for the run. One that ends, or does not answer for `run.patience`, is
    replaced and its unit done again: to the same bits, for nothing but the unit and the model goes into it."""

    def __init__(self, config: Config, station: Station, updates: SharedRows, count: int) -> None:
        self.updates = updates
        self.lost: dict[int, str] = {}
        self.processes = count
        self._patience = config.run.patience
        self._station = station
        self._received = SharedRows.create(1, station.visiting.received_width, budget=2**62)
        self._workers: list[WorkerProcess] = []
        self._begun: _Work | None = None
        self._hello = {
            "config": config.to_dict(),
            "rows": updates.array.shape[0],
            "on_disk": updates.on_disk,
            "updates": updates.descriptor,
            "received": self._received.descriptor,
        }
        try:
            for _ in range(count):
                self._workers.append(self._started())
            for k in range(count):
                self._greet(k)
        except BaseException:
            self.close()
            raise

    def begin(self, units: Sequence[TrainUnit], parameters: torch.Tensor) -> None:
        assert self._begun is None
        self._begun = self._handed(units, parameters)

    def reports(self) -> list[list[Report]]:
        assert self._begun is not None
        work = self._begun
        results = self._collected(work)
        if work.lost and len(work.lost) == len(work.units):
            raise _ended(next(iter(work.lost.values())))
        self.lost = {client: how for number, how in work.lost.items() for client in clients_of(work.units[number])}
        self._begun = None
        self.updates.release()
        return [reports_from_json(one) for k, one in enumerate(results) if k not in work.lost]

    def measure(self, units: Sequence[MeasureUnit], parameters: torch.Tensor) -> list[list[Scores]]:
        return [scores_from_json(one) for one in self._all(units, parameters)]

    def ask(self, units: Sequence[AskUnit], parameters: torch.Tensor) -> list[Told]:
        return self._all(units, parameters)

    def close(self) -> None:
        end_all(self._workers, at_once=self._begun is not None)  # nobody will ask for what they are at
        self._workers = []
        self.updates.close()
        self._received.close()

    def _started(self) -> WorkerProcess:
        return WorkerProcess(self._hello, (self.updates.descriptor, self._received.descriptor), self._patience)

    def _greet(self, k: int) -> None:
        """It has read the data, and the same as this process."""
        name, federation = self._station.config.data.name, self._station.federation
        try:
            answer = self._workers[k].receive()
        except Gone as how:
            raise _ended(f"worker {k} {how} while starting") from None
        if "error" in answer:
            raise AdafedError(answer["error"])
        if answer["clients"] != len(federation.ids):
            raise AdafedError(
                f"data.name = {name!r} gave {answer['clients']} clients to a worker process and "
                f"{len(federation.ids)} to this one; the data must be the same each time it is read"
            )
        if answer["checksum"] not in (None, federation.checksum):
            raise AdafedError(
                f"data.name = {name!r} gave other samples to a worker process than to this one; "
                "your function must return the same each time, so give its random numbers a fixed seed"
            )

    def _handed(self, units: Sequence[Unit], parameters: torch.Tensor) -> _Work:
        """The workers have their first units."""
        self._received.tensor[0, : len(parameters)].copy_(parameters)
        work = _Work(units, UnitQueue(units, len(self._workers)), len(self._workers))
        self._hand_apart(work)
        for _ in range(AHEAD - 1):
            for k in range(len(work.held)):
                self._hand(k, work)
        return work

    def _all(self, units: Sequence[Unit], parameters: torch.Tensor) -> list[Any]:
        """An evaluation without the clients that end their worker would say something else: it is not made."""
        assert self._begun is None
        work = self._handed(units, parameters)
        results = self._collected(work)
        for how in work.lost.values():
            raise _ended(how)
        return results

    def _collected(self, work: _Work) -> list[Any]:
        """Everything done and answered, in the order of the units; None for what was lost."""
        results: list[Any] = [None] * len(work.units)
        last = monotonic()
        while any(work.held):
            busy = {self._workers[k].connection: k for k in range(len(work.held)) if work.held[k]}
            ready = [busy[one] for one in wait(list(busy), timeout=TICK) if isinstance(one, Connection)]
            now = monotonic()
            for k in busy.values():
                # Time in which this process itself was stopped does not count: the others may have been so too.
                work.silent[k] = 0.0 if k in ready else work.silent[k] + min(now - last, 2 * TICK)
            last = now
            for k in ready:
                try:
                    answer = self._workers[k].receive()
                except Gone as how:
                    self._again(k, work, str(how))
                    continue
                work.held[k].popleft()
                _raise_failure(answer, work.units)
                results[answer["number"]] = answer["results"]
                self._hand(k, work)
            for k in set(busy.values()) - set(ready):
                if work.silent[k] >= TICK:
                    self._watch(k, work)
        return results

    def _watch(self, k: int, work: _Work) -> None:
        """A worker that has not answered for a while: a word about one that is stopped, and an end to every wait."""
        worker, silent = self._workers[k], work.silent[k]
        limit = min(STOPPED, self._patience) if worker.stopped else self._patience
        if silent >= limit:
            self._again(k, work, worker.overdue(limit))
        elif worker.stopped and silent >= A_WORD and k not in work.told:
            work.told.add(k)
            log.warning("worker %d (process %d) was stopped; in %.0f s it is replaced", k, worker.pid, limit - silent)

    def _again(self, k: int, work: _Work, how: str) -> None:
        """Another process in the place of one that is gone. The unit it was at is done once more, in the end by nobody;
        those it had not begun just wait again."""
        work.silent[k] = 0.0
        work.told.discard(k)
        worker = self._workers[k]
        end_all([worker], at_once=True)  # before its unit is another's: it writes to the same rows
        for number in work.held[k]:
            for kept in getattr(work.units[number], "kept", ()):
                if kept.target is not None:
                    partial(Path(kept.target), worker.pid).unlink(missing_ok=True)
        units, work.held[k] = work.held[k], deque()
        for place, number in reversed(list(enumerate(units))):
            work.tries[number] += place == 0
            if work.tries[number] < TRIES:
                work.queue.put_back(k, number)
            else:
                who = ", ".join(self._station.federation.ids[client] for client in clients_of(work.units[number]))
                work.lost[number] = f"worker {k} {how} on client {who}, the second process to do so"
                log.warning("%s; not tried again", work.lost[number])
        log.warning("worker %d %s; another takes its place, and its work is done again", k, how)
        self._workers[k] = self._started()
        self._greet(k)
        self._hand(k, work)

    def _hand_apart(self, work: _Work) -> None:
        """The first units, with each worker bound to a core of its own while they are handed out.

        The scheduler may wake two workers on one core and leave the other idle until its next tick, four milliseconds
        that a round of small clients takes in all. Where each goes afterwards is the scheduler's choice again: other
        runs may be on the same cores. The core this process is on comes last, as its worker may push it aside.
        """
        cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
        order = list(range(len(work.held)))
        if 1 < len(order) <= len(cores):
            here = _core()
            order.sort(key=lambda k: cores[k] == here)
            self._bind([{core} for core in cores])
        for k in order:
            self._hand(k, work)
        if 1 < len(order) <= len(cores):
            self._bind([set(cores)] * len(order))

    def _bind(self, cores: Sequence[set[int]]) -> None:
        with suppress(
            OSError
        ):  # a worker that is gone will be missed soon; where binding is forbidden, nothing is lost
            for worker, its in zip(self._workers, cores, strict=False):
                os.sched_setaffinity(worker.pid, its)

    def _hand(self, k: int, work: _Work) -> None:
        """The next unit, unless the worker is busy and one that is free could take it soon."""
        queue, held = work.queue, work.held
        if not len(queue) or (held[k] and len(queue) < len(held)):
            return
        number, message = queue.pop(k)
        if held[k] and len(message) > AHEAD_BYTES:
            queue.put_back(k, number)
            return
        if not held[k]:
            work.silent[k] = 0.0
        held[k].append(number)
        try:
            self._workers[k].send(message)
        except Gone as how:
            self._again(k, work, str(how))


class _Work:
    """Units under way: those that wait, and those that each worker holds, in the order it does them. `silent` is for
    how many seconds a worker has not answered; `lost` are units that nobody could do, and how that went."""

    def __init__(self, units: Sequence[Unit], queue: UnitQueue, workers: int) -> None:
        self.units = units
        self.queue = queue
        self.held: list[deque[int]] = [deque() for _ in range(workers)]
        self.silent = [0.0] * workers
        self.told: set[int] = set()  # workers of whom a word was said
        self.tries: Counter[int] = Counter()
        self.lost: dict[int, str] = {}


def _ended(how: str) -> AdafedError:
    return AdafedError(
        f"{how}; finished rounds are saved, so the run can be resumed, with fewer workers if memory is short"
    )


def _core() -> int:
    """The core this thread is on, or -1 where the system does not say."""
    try:
        return int(ctypes.CDLL(None).sched_getcpu())
    except (OSError, AttributeError):
        return -1


def _raise_failure(answer: dict[str, Any], units: Sequence[Unit]) -> None:
    if "error" in answer:
        raise AdafedError(answer["error"])
    if "crash" in answer:
        told = ", ".join(map(str, clients_of(units[answer["number"]])))
        raise RuntimeError(f"a worker failed on client {told}:\n{answer['crash']}")
