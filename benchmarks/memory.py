"""What remembering the federation costs the server, beside the same cohort without a memory, in one run.

    python benchmarks/memory.py [--clients 100,1000] [--length 656810,1000000] [--cohort 10] [--repeats 5]

Clients of ten kinds send noise around their kind's update. First everybody is heard once; then each repeat aggregates
one cohort without and with a memory of everybody, by AdaFed and by the plain average (which is then MIFA). `ratio` is
the median over the repeats of the ratio within a repeat, of processor time. `point` is the time of AdaFed's point over
all rows alone, warm-started from the round before and from nothing. `anonymous` is the memory of the process that no
file stands behind, at its largest while the rows lie in a file; `error` is how far the direction is from that of
float32 storage, as a share of its length.
"""

from __future__ import annotations

import argparse
import platform
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

import adafed
from adafed.algebra.blocks import one_blas_thread
from adafed.algebra.hulls import simplex_point
from adafed.algebra.stored import STORAGES, Storage
from adafed.server.memory import Remember
from adafed.server.row_files import RowStore

RULES = {"AdaFed": adafed.rule("adafed"), "average (MIFA)": adafed.rule("fedavg", weighted=False)}
KINDS = 10


class Clients:
    """Updates that repeat from round to round but for some noise."""

    def __init__(self, count: int, length: int, cohort: int) -> None:
        self.random = np.random.default_rng(0)
        self.count, self.cohort = count, cohort
        self.kinds = self.random.standard_normal((KINDS, length), dtype=np.float32) + np.float32(0.2)
        self.losses = self.random.uniform(0.5, 3.0, count)

    def round(self, number: int, asked: Any) -> dict[str, Any]:
        noise = self.random.standard_normal((len(asked), self.kinds.shape[1]), dtype=np.float32)
        updates = self.kinds[np.asarray(asked) % KINDS] + np.float32(0.5) * noise
        return {"updates": torch.from_numpy(updates), "losses": self.losses[asked], "clients": asked, "round": number}

    def everybody(self) -> Iterator[dict[str, Any]]:
        for number, first in enumerate(range(0, self.count, self.cohort), 1):
            yield self.round(number, list(range(first, min(first + self.cohort, self.count))))

    def drawn(self, number: int) -> dict[str, Any]:
        return self.round(number, np.sort(self.random.choice(self.count, self.cohort, replace=False)).tolist())


def timed(call: Callable[..., Any], *given: Any, **named: Any) -> tuple[float, Any]:
    before = time.process_time()
    found = call(*given, **named)
    return time.process_time() - before, found


def anonymous() -> float:
    """Megabytes of this process that no file stands behind."""
    status = Path("/proc/self/status").read_text().splitlines()
    return sum(int(line.split()[1]) for line in status if line.startswith("RssAnon")) / 1024


@contextmanager
def watching() -> Iterator[list[float]]:
    """The largest `anonymous` meanwhile."""
    most, done = [anonymous()], threading.Event()

    def look() -> None:
        while not done.wait(0.02):
            most[0] = max(most[0], anonymous())

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield most
    finally:
        done.set()
        thread.join()


def measured(rule: adafed.Rule, count: int, length: int, cohort: int, repeats: int, storage: Storage) -> dict[str, Any]:
    clients = Clients(count, length, cohort)
    state: adafed.RuleState | None = None
    ratios, seconds, points = [], [], []
    with tempfile.TemporaryDirectory() as folder, watching() as most:
        remember = Remember("all", store=RowStore(storage, path=Path(folder) / "rows"))
        for call in clients.everybody():
            state = adafed.aggregate(rule, **call, state=state, memory=remember).state
        for number in range(count, count + repeats):
            call = clients.drawn(number)
            without, _ = timed(adafed.aggregate, rule, **call)
            took, outcome = timed(adafed.aggregate, rule, **call, state=state, memory=remember)
            ratios.append(took / without)
            seconds.append((without, took))
            guess, state = state.known.coefficients if state else None, outcome.state
            if state.known.gram is not None:
                with one_blas_thread():
                    weights = state.known.losses**2
                    warm, _ = timed(simplex_point, state.known.gram, weights, guess)
                    cold, _ = timed(simplex_point, state.known.gram, weights)
                points.append((warm, cold))
        direction = outcome.direction
    return {
        "without": median(one for one, _ in seconds),
        "with": median(one for _, one in seconds),
        "ratio": median(ratios),
        "warm": median(one for one, _ in points) if points else float("nan"),
        "cold": median(one for _, one in points) if points else float("nan"),
        "anonymous": most[0],
        "direction": direction,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", default="100,1000")
    parser.add_argument("--length", default="656810,1000000", help="of an update, one for each number of clients")
    parser.add_argument("--cohort", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--storages", default="float32,bfloat16,int8", help="the lossy ones are measured for the first")
    given = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{platform.processor() or platform.machine()}, one thread; cohorts of {given.cohort}")
    print(f"{'clients x numbers':>20} {'rule':>15} {'storage':>9} {'without':>9} {'with':>8} {'ratio':>6} "
          f"{'point warm':>11} {'cold':>8} {'anonymous':>10} {'error':>8}")  # fmt: skip
    sizes = zip(map(int, given.clients.split(",")), map(int, given.length.split(",")), strict=True)
    for place, (count, length) in enumerate(sizes):
        for name, rule in RULES.items():
            exact = None
            for storage in STORAGES if place == 0 else STORAGES[:1]:
                if storage not in given.storages.split(","):
                    continue
                found = measured(rule, count, length, given.cohort, given.repeats, storage)
                exact = found["direction"] if exact is None else exact
                error = float((found["direction"] - exact).norm() / exact.norm())
                print(
                    f"{count:>10} x {length:>7} {name:>15} {storage:>9} {1e3 * found['without']:>6.0f} ms "
                    f"{1e3 * found['with']:>5.0f} ms {found['ratio']:>6.1f} {1e3 * found['warm']:>8.1f} ms "
                    f"{1e3 * found['cold']:>5.1f} ms {found['anonymous']:>7.0f} MB {error:>8.1e}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
