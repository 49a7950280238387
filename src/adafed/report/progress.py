"""The live display of a run: round, accuracies, rho, time left; and a clean stop on Ctrl-C."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from threading import Thread
from types import FrameType

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from adafed.rounds.records import RoundRecord


class Display:
    """A progress bar a run, or nothing where `quiet`."""

    def __init__(self, console: Console, *, quiet: bool = False) -> None:
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            TextColumn("{task.completed:>4.0f}/{task.total:.0f}"),
            TextColumn("{task.fields[told]}", markup=False),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console,
            disable=quiet,
        )
        self._tasks: dict[str, TaskID] = {}
        self._told: dict[str, str] = {}

    def __enter__(self) -> Display:
        return self

    def __exit__(self, *_: object) -> None:
        if self._tasks:
            self._progress.stop()

    def show(self, name: str, total: int, round: int, record: RoundRecord | None = None) -> None:
        """After a round; the accuracies stay until the next evaluation."""
        self._progress.start()  # not before: a mistake found while data is read is told without an empty display
        if name not in self._tasks:
            # Started late, so that the time left is judged by the rounds of this session alone.
            self._tasks[name] = self._progress.add_task(name, total=total, completed=max(round - 1, 0), told="")
        told = self._told.get(name, "")
        evaluation = record.evaluation() if record else None
        if evaluation is not None:
            fairness = evaluation.fairness
            told = f"mean {100 * fairness.mean:5.1f}  worst 10% {100 * fairness.worst_10:5.1f}"
            self._told[name] = told
        if record is not None and record.rho is not None:
            told += f"  ρ {100 * record.rho:3.0f}%"
        self._progress.update(self._tasks[name], completed=round, told=told)


class Stopped:
    """Whether Ctrl-C was pressed: rounds end, then the run does. A second one ends at once."""

    def __init__(self) -> None:
        self.asked = False

    def __bool__(self) -> bool:
        return self.asked


@contextmanager
def stop_after_the_round(console: Console) -> Iterator[Stopped]:
    stopped = Stopped()
    # A handler interrupts its thread anywhere, also in the middle of the display's own printing or importing, which
    # cannot be entered twice; so another thread prints, and waits its turn as threads do.
    sentences: SimpleQueue[str | None] = SimpleQueue()

    def ask(_: int, __: FrameType | None) -> None:
        if stopped.asked:
            raise KeyboardInterrupt
        stopped.asked = True
        sentences.put("stopping after this round; press Ctrl-C again to stop now")

    def tell() -> None:
        while (sentence := sentences.get()) is not None:
            console.print(sentence, style="yellow")

    teller = Thread(target=tell, name="adafed-ctrl-c", daemon=True)
    teller.start()
    before = signal.signal(signal.SIGINT, ask)
    try:
        yield stopped
    finally:
        signal.signal(signal.SIGINT, before)
        sentences.put(None)
        teller.join()
