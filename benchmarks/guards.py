"""What the default guards cost of a round's processor time, in one run: a round is aggregated without and with them.

    python benchmarks/guards.py [--rounds 60] [--clients 10] [--hidden 64]

The simulator trains in this process, on one thread. A round's time is that of training and of the server without
guards; the cost is what the aggregation takes more with them, as a median over the rounds.
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


def measured(rule: str, rounds: int, clients: int, hidden: int) -> tuple[float, float]:
    """Median processor seconds of a round without guards, and what they add."""
    plain: list[float] = []
    guarded: list[float] = []
    aggregate = server_half.aggregate

    def both(*given: Any, guards: Any, **told: Any) -> Aggregate:
        """Without and with, in turns first: the second call finds the updates in the cache."""
        found = {}
        for guarding in (len(plain) % 2 == 0, len(plain) % 2 == 1):
            begun = time.process_time()
            found[guarding] = aggregate(*given, **told, guards=guards if guarding else ())
            (guarded if guarding else plain).append(time.process_time() - begun)
        return found[True]

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
    server_half.aggregate = both  # type: ignore[assignment]
    try:
        last = time.process_time()
        for _ in adafed.simulate(config):
            now = time.process_time()
            whole.append(now - last - guarded[-1])
            last = now
    finally:
        server_half.aggregate = aggregate
    return median(whole[1:-1]), median(guarded) - median(plain)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=60)
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
