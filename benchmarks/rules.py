"""What a rule costs the server, beside FedAvg in the same simulation: the paper's claim on running time.

    python benchmarks/rules.py [--clients 10,100] [--repeats 9] [--samples 400]

One simulation for each rule, of the same clients, the same first model and the same cohort: CIFAR-10's set-up 1 in its
shapes, an MLP 3072-200-200-10 (656,810 numbers), every client in every round, batches of 64. A repeat is a round of
each rule in turn; a ratio is the median over the repeats of the ratio within a repeat, so that a slow minute of the
machine meets all of them. `server` is the time from the last update to the new parameters, `round` all of a round;
rho_t and evaluations are off, and clients do the same work under every rule, the loss before training included. Every
rule's time has the diagnostics in it, among them each g_k . d, which come with the Gram matrix and cost FedAvg a pass
of its own; the least an average can take is the first row, torch's mean of as many numbers and a step.
"""

from __future__ import annotations

import argparse
import platform
import sys
import time
from contextlib import ExitStack
from statistics import median
from typing import Any

import numpy as np
import torch

import adafed
from adafed.data.base import ClientData, Normalisation, Split
from adafed.engines.local.simulate import Simulation

LENGTH = 656_810
MEAN = "mean and step alone"
RULES: dict[str, dict[str, Any]] = {
    "FedAvg": {"name": "fedavg"},
    "FedMGDA+, epsilon 1": {"name": "fedmgda+", "epsilon": 1.0},
    "FedMGDA+, epsilon 0.1": {"name": "fedmgda+", "epsilon": 0.1},
    "AdaFed, affine": {"name": "adafed", "gamma": 1.0, "hull": "affine"},
    "AdaFed, simplex": {"name": "adafed", "gamma": 1.0, "hull": "simplex"},
}


class Clients:
    """Noise with labels: what is timed does not depend on what is learnt."""

    name, classes, input_shape, checksum, normalisation = "noise", 10, (3072,), "0" * 64, Normalisation()

    def __init__(self, count: int, samples: int) -> None:
        self.ids = tuple(map(str, range(count)))
        self.train_sizes = np.full(count, samples)
        random = np.random.default_rng(0)
        self.inputs = random.standard_normal((count, samples, 3072), dtype=np.float32)
        self.targets = random.integers(0, 10, (count, samples))

    def client(self, index: int) -> ClientData:
        inputs, targets = self.inputs[index], self.targets[index]
        return ClientData(Split(inputs, targets), Split(inputs[:0], targets[:0]), Split(inputs[:1], targets[:1]))


def config(rounds: int, rule: dict[str, Any]) -> adafed.Config:
    return adafed.config_from(
        {
            "rounds": rounds,
            "model": {"name": "mlp", "hidden": [200, 200]},
            "local": {"batch_size": 64, "lr": 0.01},
            "rule": rule,
            "server": {"rate": 0.01},  # the models stay near one another: the rules get the same kind of updates
            "split": {"validation": 0.0},
            "evaluation": {"every": 10**6, "improvement_every": 0},
            "run": {"workers": 0},
        }
    )


def measure(count: int, samples: int, repeats: int) -> dict[str, tuple[list[float], list[float]]]:
    """For each rule its seconds in the server and of the round; the first round pays for memory, and is left out."""
    clients = Clients(count, samples)
    found: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in [MEAN, *RULES]}
    updates, parameters = torch.randn(count, LENGTH), torch.zeros(LENGTH)
    with ExitStack() as stack:
        rounds = {
            name: stack.enter_context(Simulation(config(repeats + 1, rule), federation=clients)).rounds()
            for name, rule in RULES.items()
        }
        for repeat in range(repeats + 1):
            for _ in range(2):  # once to get hold of the processor again, once for the clock
                start = time.perf_counter()
                parameters -= 0.01 * updates.mean(dim=0)
                alone = time.perf_counter() - start
            if repeat:
                found[MEAN][0].append(alone)
            for name, iterator in rounds.items():
                start = time.perf_counter()
                record = next(iterator)
                whole = time.perf_counter() - start
                if repeat:
                    found[name][0].append(record.seconds["server"])
                    found[name][1].append(whole)
    return found


def ratio(one: list[float], other: list[float]) -> float:
    return median(a / b for a, b in zip(one, other, strict=True))


def table(clients: int, found: dict[str, tuple[list[float], list[float]]]) -> str:
    base, mean = found["FedAvg"], found[MEAN][0]
    lines = [
        f"{clients} clients x {LENGTH:,} numbers",
        "",
        "| | server, milliseconds | to the mean's | to FedAvg's | round to FedAvg's | server's share of the round |",
        "|---|---|---|---|---|---|",
        f"| {MEAN} | {1e3 * median(mean):.1f} | 1.0 | {ratio(mean, base[0]):.2f} | - | - |",
    ]
    for name in RULES:
        server, whole = found[name]
        cells = [
            f"{1e3 * median(server):.1f}",
            f"{ratio(server, mean):.1f}",
            f"{ratio(server, base[0]):.2f}",
            f"{ratio(whole, base[1]):.2f}",
            f"{ratio(server, whole):.1%}",
        ]
        lines.append("| " + " | ".join([name, *cells]) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", default="10,100")
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--samples", type=int, default=400, help="of a client; default %(default)s")
    arguments = parser.parse_args()
    print(f"python {platform.python_version()}, torch {torch.__version__}, threads {torch.get_num_threads()}")
    for clients in map(int, arguments.clients.split(",")):
        print("\n" + table(clients, measure(clients, arguments.samples, arguments.repeats)))
        sys.stdout.flush()


if __name__ == "__main__":
    main()
