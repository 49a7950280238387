"""What the default guards cost of a round's processor time, in one run: rounds without and with them, in turns.

    python benchmarks/guards.py [--rounds 200] [--clients 10] [--hidden 64]

The simulator trains in this process, on one thread. A round's time is that of training and of the server without
guards; the cost is what the aggregation takes more with them. Both are medians over half of the rounds, in turns.
"""

from __future__ import annotations

import argparse
import time
from statistics import median
from typing import Any

import torch

import adafed
import adafed.rounds.round as server_half
from adafed.server.aggregate import Aggregate
from adafed.server_rules.guards import guards_from


def measured(rule: str, rounds: int, clients: int, hidden: int) -> tuple[float, float]:
    """Median processor seconds of a round without guards, and what they add."""
    plain: list[float] = []
    guarded: list[float] = []
    again: list[float] = []
    aggregate, none = server_half.aggregate, guards_from([])  # as a run without guards has them

    def in_turns(*given: Any, guards: Any, **told: Any) -> Aggregate:
        """Every other round without them first, and once more with them to go on from. Only a round's first call is
        taken: it finds the caches as training leaves them."""
        without = len(plain) == len(guarded)
        begun = time.process_time()
        found = aggregate(*given, **told, guards=none if without else guards)
        (plain if without else guarded).append(time.process_time() - begun)
        begun = time.process_time()
        if without:
            found = aggregate(*given, **told, guards=guards)
        again.append(time.process_time() - begun)
        return found

    config = adafed.config_from(
        {
            "rounds": rounds,
            "partition": {"name": "dirichlet", "clients": clients, "beta": 0.3},
            "model": {"name": "mlp", "hidden": [hidden]},
            "local": {"batch_size": 16},
            "rule": rule,
            "guards": {"use": "default"},
            "evaluation": {"every": rounds, "improvement_every": 0},
            "run": {"workers": 0},
        }
    )
    whole: list[float] = []
    server_half.aggregate = in_turns  # type: ignore[assignment]
    try:
        last = time.process_time()
        for _ in adafed.simulate(config):
            now = time.process_time()
            whole.append(now - last - again[-1])
            last = now
    finally:
        server_half.aggregate = aggregate
    return median(whole[2:-1:2]), median(guarded) - median(plain)  # of the rounds without them


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--clients", type=int, default=10)
    parser.add_argument("--hidden", type=int, default=64)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    for rule in ("adafed", "fedavg"):
        whole, more = measured(rule, chosen.rounds, chosen.clients, chosen.hidden)
        print(
            f"{rule}: a round takes {1000 * whole:.1f} ms; guards add {1000 * more:.2f} ms, {100 * more / whole:.1f} %"
        )


if __name__ == "__main__":
    main()
