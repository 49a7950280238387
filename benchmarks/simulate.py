"""Time of a round of the simulator with worker processes, side by side with a plain serial PyTorch loop.

    python benchmarks/simulate.py [--cases a,b,c] [--repeats 7] [--workers 2]

Both do the same computation on the same samples: every client of the cohort measures its loss with the received model
(what AdaFed is told), trains, and writes its flat update; the server forms the Gram matrix, solves and steps. rho_t and
evaluations are off in both. One torch thread in every process. A repeat runs each entrant once, and a ratio is the
median over the repeats of the ratio within a repeat, so that a slow minute of the machine meets all of them.

On a machine whose cores others use too, workers wait for a core and the wall clock tells little. So there is a second
ratio, of processor time on the longest path: the main process's and the busiest worker's, to the loop's.
"""

from __future__ import annotations

import argparse
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import psutil
import torch
import torch.nn.functional as F

from adafed import models
from adafed.config.configuration import Config, config_from
from adafed.engines.local.simulate import simulate
from adafed.rounds.records import RoundRecord

LOOP = "plain loop"
MEMORY = "adafed, results in memory"
SAVED = "adafed with a run directory"


@dataclass(frozen=True)
class Case:
    """`bar` is what the ratio to the loop must not exceed with two workers; `rounds` are timed in one go."""

    title: str
    model: dict[str, Any]
    shape: tuple[int, ...]
    classes: int
    clients: int
    cohort: int
    samples: int
    batch: int
    epochs: int
    bar: float
    rounds: int


CASES = {
    "a": Case("MLP 3072-200-100-10, 10 of 100 clients, 400 samples, batch 64",
              {"name": "mlp", "hidden": [200, 100]}, (3072,), 10, 100, 10, 400, 64, 1, 0.6, 10),
    "b": Case("CNN 32/64 5x5, 512, 62 on 28x28, 50 clients, 100 samples, batch 32, two epochs",
              {"name": "cnn"}, (1, 28, 28), 62, 50, 50, 100, 32, 2, 0.65, 1),
    "c": Case("MLP 64-64-10, 100 clients, 20 samples, batch 10",
              {"name": "mlp", "hidden": [64]}, (64,), 10, 100, 100, 20, 10, 1, 0.15, 60),
}  # fmt: skip
LEARNING_RATE = 0.01


def clients(shape: list[int], classes: int, clients: int, samples: int) -> dict[str, dict[str, Any]]:
    """The data function that the configuration names: random numbers, and a test part of one sample."""
    random = np.random.default_rng(0)

    def part(count: int) -> tuple[Any, Any]:
        return random.standard_normal((count, *shape), dtype=np.float32), random.integers(0, classes, count)

    made: dict[str, dict[str, Any]] = {}
    for client in range(clients):
        (x, y), (x_test, y_test) = part(samples), part(1)
        made[str(client)] = {"x": x, "y": y, "x_test": x_test, "y_test": y_test}
    return made


def configuration(case: Case, workers: int) -> Config:
    options = {
        "shape": list(case.shape), "classes": case.classes, "clients": case.clients, "samples": case.samples,
    }  # fmt: skip
    return config_from({
        "rounds": 10**6,
        "data": {"name": "function", "function": "simulate:data", "classes": case.classes, "options": options},
        "split": {"validation": 0.0, "test": 0.0},
        "model": case.model,
        "cohort": {"count": case.cohort},
        "local": {"epochs": case.epochs, "batch_size": case.batch, "lr": LEARNING_RATE},
        "rule": {"name": "adafed", "gamma": 1.0, "hull": "affine"},
        "evaluation": {"every": 10**6, "improvement_every": 0},
        "run": {"workers": workers, "cache_mb": 1024},
    })  # fmt: skip


def data(options: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return clients(**options)


class Loop:
    """The loop one would write by hand: one module, flat parameters, foreach steps, torch's own Gram and solve."""

    def __init__(self, case: Case) -> None:
        self.case = case
        made = clients(list(case.shape), case.classes, case.clients, case.samples)
        self.inputs = [torch.from_numpy(one["x"]) for one in made.values()]
        self.targets = [torch.from_numpy(one["y"]) for one in made.values()]
        options = {key: value for key, value in case.model.items() if key != "name"}
        self.model = models.build(case.model["name"], case.shape, case.classes, **options)
        self.parameters = list(self.model.parameters())
        self.flat = torch.cat([parameter.detach().reshape(-1) for parameter in self.parameters])
        start = 0
        for parameter in self.parameters:
            parameter.data = self.flat[start : start + parameter.numel()].view(parameter.shape)
            start += parameter.numel()
        self.server = self.flat.clone()
        self.updates = torch.empty(case.cohort, len(self.flat))
        self.random = torch.Generator().manual_seed(0)

    def round(self) -> None:
        case = self.case
        losses = torch.empty(case.cohort)
        for row, client in enumerate(torch.randperm(case.clients, generator=self.random)[: case.cohort].tolist()):
            x, y = self.inputs[client], self.targets[client]
            self.flat.copy_(self.server)
            with torch.no_grad():
                losses[row] = F.cross_entropy(self.model(x), y)
            for _ in range(case.epochs):
                for batch in torch.randperm(len(y), generator=self.random).split(case.batch):
                    grads = torch.autograd.grad(F.cross_entropy(self.model(x[batch]), y[batch]), self.parameters)
                    with torch.no_grad():
                        torch._foreach_add_(self.parameters, grads, alpha=-LEARNING_RATE)
            torch.sub(self.server, self.flat, out=self.updates[row])
        weights = losses.double() / losses.double().mean()
        solved = torch.linalg.solve((self.updates @ self.updates.T).double(), weights)
        self.server -= (solved / (weights @ solved)).float() @ self.updates


@dataclass
class Entrant:
    run: Callable[[], object]
    workers: list[psutil.Process]
    seconds: list[float]
    processor: list[float]

    def timed(self, rounds: int) -> None:
        start, before = time.perf_counter(), self._processor()
        for _ in range(rounds):
            self.run()
        self.seconds.append((time.perf_counter() - start) / rounds)
        main, *others = (new - old for new, old in zip(self._processor(), before, strict=True))
        self.processor.append((main + max(others, default=0.0)) / rounds)

    def _processor(self) -> list[float]:
        used = [worker.cpu_times() for worker in self.workers]
        return [time.process_time(), *(times.user + times.system for times in used)]


@dataclass
class Shares:
    """Of each saved round, what the server's step and bookkeeping take: while the clients wait, and with what is saved
    while those of the next round train already."""

    waiting: list[float]
    all: list[float]

    def add(self, seconds: dict[str, float]) -> None:
        total = sum(seconds.values())
        self.waiting.append(seconds["server"] / total)
        self.all.append((seconds["server"] + seconds["save"]) / total)


def measure(case: Case, repeats: int, workers: int) -> tuple[dict[str, Entrant], Shares]:
    """Every entrant with its times, and the server's shares of the saved rounds."""
    loop = Loop(case)
    shares = Shares([], [])
    with tempfile.TemporaryDirectory() as folder:
        config = configuration(case, workers)
        here, saved = simulate(config), simulate(config, directory=Path(folder) / "run")

        def keep(records: Iterator[RoundRecord]) -> None:
            shares.add(next(records).seconds)

        calls = {LOOP: loop.round, MEMORY: lambda: next(here), SAVED: lambda: keep(saved)}
        entrants: dict[str, Entrant] = {}
        warm = max(2, 3 * case.clients // case.cohort) if case.clients > case.cohort else 2
        for name, call in calls.items():  # a first round starts processes, reads data, and fills caches
            before = psutil.Process().children()
            for _ in range(warm):
                call()
            started = [child for child in psutil.Process().children() if child not in before]
            entrants[name] = Entrant(call, started, [], [])
        shares = Shares([], [])
        for _ in range(repeats):
            for entrant in entrants.values():
                entrant.timed(case.rounds)
        here.close()  # ends their workers
        saved.close()
    return entrants, shares


def table(case: Case, entrants: dict[str, Entrant], shares: Shares, workers: int) -> str:
    lines = [
        f"{case.title}; {workers} workers, bar {case.bar}",
        "",
        "| | milliseconds a round | to the loop | longest path to the loop | clients wait | and saving |",
        "|---|---|---|---|---|---|",
    ]
    base = entrants[LOOP]
    for name, one in entrants.items():
        to_loop = median(a / b for a, b in zip(one.seconds, base.seconds, strict=True))
        path = median(a / b for a, b in zip(one.processor, base.processor, strict=True))
        share = f"{median(shares.waiting):.1%} | {median(shares.all):.1%}" if name == SAVED else "- | -"
        lines.append(f"| {name} | {median(one.seconds) * 1e3:.2f} | {to_loop:.2f} | {path:.2f} | {share} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", default="a,b,c", help="default %(default)s")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()
    chosen = arguments.cases.split(",")
    if unknown := [name for name in chosen if name not in CASES]:
        raise SystemExit(f"--cases has {unknown[0]!r}: there are {', '.join(CASES)}")
    torch.set_num_threads(1)
    print(f"python {platform.python_version()}, torch {torch.__version__}, {arguments.repeats} repeats")
    for name in chosen:
        entrants, shares = measure(CASES[name], arguments.repeats, arguments.workers)
        print(f"\n({name}) {table(CASES[name], entrants, shares, arguments.workers)}")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
