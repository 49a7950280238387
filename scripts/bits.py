"""Hashes of what a set of small runs ends in, to show that a change of the code changes no bit.

    python scripts/bits.py before.json                   runs everything (minutes) and keeps the hashes
    python scripts/bits.py after.json --against before.json    the same, and names what differs
    python scripts/bits.py after.json --only fedcorr           those whose name has the word

A hash is of the final parameters, the rows of the run's tables (under the names their columns had first) and what
clients keep between rounds. Every server rule, every client-side method, dropouts, stragglers and joiners, dense,
convolutional and recurrent models, BatchNorm, worker processes, and Flower (without its processes).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import logging
import sqlite3
import sys
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from torch import nn

import adafed

HERE = Path(__file__).resolve().parent
DIGITS = {
    "rounds": 4,
    "data": {"name": "digits"},
    "partition": {"name": "dirichlet", "clients": 8, "beta": 0.5, "minimum": 20},
    "model": {"name": "mlp", "hidden": [12]},
    "cohort": {"fraction": 0.5},
    "local": {"epochs": 2, "batch_size": 16},
    "guards": {"use": []},
    "memory": {"rounds": 0},
    "run": {"workers": 0},
}
IMAGES = {"data": {"name": "digits", "flat": False}, "local": {"epochs": 1, "lr": 0.05}, "rounds": 3}
CNN = IMAGES | {"model": {"name": "cnn", "channels": [4, 6], "dense": 16, "dropout": 0.2}}
NORM = IMAGES | {"model": {"name": "bits:WithBatchNorm"}}
LSTM = {
    "rounds": 2,
    "data": {"name": "function", "function": "bits:text"},
    "partition": {"name": "iid", "clients": 6},
    "model": {"name": "lstm", "embedding": 4, "hidden": 8, "layers": 1},
}
EQUAL = {"partition": {"name": "iid", "clients": 8}}
FEDCORR = {
    "rounds": 20,
    "noise": {"clients": 0.6, "level": 0.5},
    "fedcorr": {"iterations": 2, "group": 2, "clean_rounds": 4, "neighbours": 5},
    "evaluation": {"every": 5},
}
DITTO = {"ditto": {"lambda": 0.5}}

RULES: dict[str, Any] = {
    "adafed": "adafed",
    "adafed-paper": {"name": "adafed", "gamma": 1.0, "hull": "affine", "scale": "paper"},
    "fedavg": "fedavg",
    "fedavg-plain": {"name": "fedavg", "weighted": False},
    "qffl": {"name": "qffl", "q": 1.0},
    "term": {"name": "term", "t": 1.0},
    "term-reference": {"name": "term", "variant": "reference"},
    "afl": "afl",
    "fedmgda": "fedmgda+",
    "fedfa": "fedfa",
    "fedfv": {"name": "fedfv", "tau": 2},
    "gifair": "gifair",
    "fcfc": {"name": "fcfc", "pareto_from": 3},
    "agnosticfair": "agnosticfair",
    "drfl": "drfl",
    "fedgini": "fedgini",
    "fedmdfg": "fedmdfg",
    "propfair": {"name": "propfair", "M": 3.0},
}
OPTIMIZERS: dict[str, Any] = {
    "momentum": {"name": "sgd", "momentum": 0.9}, "fedfa-easyfl": "fedfa-easyfl", "adam": "adam", "yogi": "yogi",
    "adagrad": "adagrad", "amsgrad": "amsgrad",
}  # fmt: skip
OTHERS: dict[str, dict[str, Any]] = {
    "fedprox": {"local": {"mu": 0.1}},
    "fedprox-momentum": {"local": {"mu": 0.1, "momentum": 0.5, "weight_decay": 0.01}},
    "fedprox-together": EQUAL | {"local": {"mu": 0.1}},
    "fedprox-cnn": CNN | {"local": {"mu": 0.1}},
    "ditto": DITTO,
    "ditto-prox-lr": {"ditto": {"lambda": 0.5, "lr": 0.05}, "local": {"mu": 0.1, "momentum": 0.5}},
    "ditto-norm": NORM | DITTO,
    "mixup": {"local": {"mixup": 1.0}},
    "mixup-cnn": CNN | {"local": {"mixup": 0.5}},
    "mixup-ditto-prox": DITTO | {"local": {"mixup": 1.0, "mu": 0.1}},
    "fcfc-clients": {"client": {"rules": [{"name": "fcfc", "above": 0.0}]}},
    "propfair-clients": {"client": {"rules": [{"name": "propfair", "M": 3.0}]}},
    "noise": {"noise": {"clients": 0.5, "level": 0.3}},
    "memory": {"memory": {"rounds": "all"}},
    "memory-fedavg-2": {"memory": {"rounds": 2}, "rule": "fedavg"},
    "memory-fedfv-int8": {"memory": {"rounds": "all", "storage": "int8", "discount": 0.9}, "rule": "fedfv"},
    "fedvarp": {"rule": "fedvarp"},
    "sampled-by-loss": {"cohort": {"fraction": 0.5, "sampling": "loss"}},
    "power-of-choice": {"cohort": {"fraction": 0.5, "sampling": "power-of-choice"}, "rule": "fedavg"},
    "fedcorr": FEDCORR,
    "fedcorr-afl": FEDCORR | {"rule": "afl"},
    "fedcorr-mixup-ditto": FEDCORR | DITTO | {"local": {"mixup": 1.0}},
    "fedcorr-cnn-prox": FEDCORR | {"data": IMAGES["data"], "model": CNN["model"], "local": {"mu": 0.1}},
    "fedcorr-join": FEDCORR | {"cohort": {"fraction": 0.5, "dropout": 0.3, "join": {"3": 5, "1": 12}}},
    "dropouts": {"cohort": {"fraction": 0.75, "dropout": 0.4}},
    "stragglers": {"cohort": {"fraction": 0.6, "sampling": "size", "stragglers": 0.5, "dropout": 0.2}},
    "joiners": {"cohort": {"join": {"2": 3, "5": 2}}},
    "nobody": {"cohort": {"join": {str(k): 3 for k in range(8)}}},
    "full-batch": {"local": {"epochs": 3, "batch_size": "full"}},
    "together": EQUAL,
    "together-momentum": EQUAL | {"local": {"momentum": 0.5}},
    "together-stragglers": EQUAL | {"cohort": {"stragglers": 0.5}},
    "double-softmax": {"local": {"loss": "double-softmax"}},
    "loss-after": {"server": {"loss": "after"}},
    "loss-running": {"server": {"loss": "running"}, "rule": "term"},
    "schedule": {"server": {"schedule": {"name": "1/sqrt(t)"}, "rate": 2.0}},
    "lr-decay": {"local": {"lr_decay": 0.5, "lr_decay_every": 2}},
    "no-rho": {"evaluation": {"every": 3, "improvement_every": 0}},
    "cnn": CNN,
    "cnn-after": CNN | {"server": {"loss": "after"}},
    "augmented": CNN | {"augment": {"padding": 1, "flip": True}},
    "ditto-end": {"ditto": {"lambda": 0.5, "epochs": 3, "at_end": "everyone"}, "rounds": 2},
    "batchnorm": NORM,
    "batchnorm-after": NORM | {"server": {"loss": "after"}},
    "lstm": LSTM,
    "synthetic": {"data": {"name": "synthetic", "clients": 8}, "partition": None, "model": "logistic"},
    "diverging": {"local": {"lr": 1e9}},
    "guards": {"guards": {"use": "default"}},
    "guards-fedavg": {"guards": {"use": ["default", "krum"]}, "rule": "fedavg"},
    "attack": {"guards": {"use": "default"}, "attack": {"use": ["labels", "random", {"name": "loss", "factor": 9.0}]}},
    "on-disk": {"model": {"name": "mlp", "hidden": [4000]}, "run": {"updates_mb": 1, "workers": 0}, "rounds": 2},
}  # fmt: skip
WORKERS = (
    "adafed", "fedfv", "ditto", "mixup", "fedcorr", "stragglers", "together", "cnn", "batchnorm", "lstm", "on-disk",
    "fedprox-together", "memory", "augmented", "ditto-end",
)  # fmt: skip
FLOWER = (
    "adafed", "fedavg", "qffl", "fedfv", "fedfa", "afl", "adam", "fedprox", "ditto", "ditto-norm", "mixup-ditto-prox",
    "stragglers", "dropouts", "loss-after", "loss-running", "cnn", "batchnorm", "lstm", "lr-decay", "diverging",
    "memory", "sampled-by-loss",
)  # fmt: skip
FIRST_NAMES = {"server_rate": "rate", "descent": "rate"}  # of columns
TABLES = {
    "rounds": "round, local_lr, rate, norm, mean_norm, condition, negative, rho, mean_decrease, skipped, notes",
    "participants": "round, client, samples, steps, before, after, running, accuracy, stepped, coefficient, rate, "
    "dropped",
    "evaluations": "round, part, personal, client, samples, loss, accuracy",
}


class WithBatchNorm(nn.Module):
    """Has statistics."""

    def __init__(self, input_shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(input_shape[0], 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.last = nn.Linear(4 * input_shape[1] * input_shape[2], classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.last(torch.relu(self.norm(self.convolution(x))).flatten(1))
        return scores


def text() -> tuple[Any, Any]:
    """Letters, each followed by one that depends on the two before it."""
    random = np.random.default_rng(0)
    x = random.integers(0, 12, size=(240, 6))
    return x, (x[:, -1] + x[:, -2]) % 12


def configurations() -> dict[str, dict[str, Any]]:
    merged = import_module("adafed.config" if _new() else "adafed.runs.config").merged
    found = {f"rule-{name}": {"rule": rule} for name, rule in RULES.items()}
    found |= {f"optimizer-{name}": {"server": {"optimizer": one, "rate": 0.3}} for name, one in OPTIMIZERS.items()}
    found |= OTHERS
    whole = {}
    for name, over in found.items():
        content = merged(DIGITS, over)
        if content.get("partition") is None:
            content.pop("partition", None)
        whole[name] = content
    short = {name.removeprefix("rule-").removeprefix("optimizer-"): content for name, content in whole.items()}
    for name in WORKERS:
        for workers in (1, 2):
            whole[f"{name}, {workers} workers"] = merged(short[name], {"run": {"workers": workers}})
    for name in FLOWER:
        rounds = short[name]["rounds"]
        whole[f"{name}, flower"] = merged(
            short[name],
            {"local": {"together": "never"}, "evaluation": {"every": rounds, "improvement_every": rounds}},
        )
    return whole


def _new() -> bool:
    return (Path(adafed.__file__).parent / "engines").exists()


def ended(name: str, content: dict[str, Any]) -> str:
    """The hash of one run."""
    config = adafed.config_from(content)
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder) / "run"
        if name.endswith(", flower"):
            _on_flower(config, directory)
        else:
            for _ in adafed.simulate(config, directory=directory):
                pass
        return _hash(directory)


def _on_flower(config: Any, directory: Path) -> None:
    sys.path.insert(0, str(HERE.parent / "tests" / ("engines/flower" if _new() else "flower")))
    pretend = import_module("pretend")
    experiment = import_module(f"adafed.{'engines.' if _new() else ''}flower.experiment")
    logging.getLogger("flwr").setLevel(logging.CRITICAL)
    grid = pretend.PretendGrid(experiment.experiment_client(config), 5)
    experiment.run_experiment(grid, config, directory, nodes=5)


def _hash(directory: Path) -> str:
    told = hashlib.sha256()
    for name, tensor in sorted(load_file(directory / "model.safetensors").items()):
        told.update(name.encode() + tensor.numpy().tobytes())
    db = sqlite3.connect(f"{(directory / 'rounds.sqlite').as_uri()}?mode=ro", uri=True)
    for table, columns in TABLES.items():
        there = [row[1] for row in db.execute(f"PRAGMA table_info({table})")]
        named = {FIRST_NAMES.get(one, one): one for one in there}
        listed = ", ".join(named[one] for one in columns.split(", "))
        for row in db.execute(f"SELECT {listed} FROM {table} ORDER BY {', '.join(map(str, range(1, 5)))}"):
            told.update(repr(row).encode())
    db.close()
    for file in sorted(f for kept in ("personal", "clients") for f in (directory / kept).glob("*.safetensors")):
        client = file.name.partition("-")[0]
        told.update(client.encode() + b"".join(t.numpy().tobytes() for t in load_file(file).values()))
    return told.hexdigest()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--against", type=Path, help="hashes kept before")
    parser.add_argument("--only", help="a word in the names of those to run")
    arguments = parser.parse_args()
    before = json.loads(arguments.against.read_text()) if arguments.against else {}
    found: dict[str, str] = {}
    different = []
    for name, content in configurations().items():
        if arguments.only and arguments.only not in name:
            continue
        try:
            found[name] = ended(name, content)
        except Exception as error:  # one that fails is a finding too
            found[name] = f"{type(error).__name__}: {error}"
            print(f"{name}: {found[name]}", flush=True)
        if name in before and before[name] != found[name]:
            different.append(name)
            print(f"differs: {name}", flush=True)
        arguments.out.write_text(json.dumps(found, indent=1) + "\n")
    print(f"{len(found)} configurations" + (f", {len(different)} differ" if before else ""))
    sys.exit(bool(different))


if __name__ == "__main__":
    main()
