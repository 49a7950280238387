"""A run with everything that has state, and whether two run directories hold the same bits."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from adafed.config.configuration import Config, config_from
from adafed.config.merging import merged


def experiment(**changes: Any) -> Config:
    """Ditto under FedFV over everyone remembered and a server with Adam: everything that has state."""
    base = {
        "rounds": 60,
        "data": {"name": "synthetic", "clients": 6, "samples": 20, "features": 5, "classes": 3},
        "model": {"name": "mlp", "hidden": [6]},
        "cohort": {"count": 4, "dropout": 0.1, "stragglers": 0.3},
        "local": {"batch_size": 8},
        "rule": {"name": "fedfv", "tau": 2},
        "memory": {"rounds": "all"},
        "server": {"optimizer": {"name": "adam"}, "rate": 0.05},
        "ditto": {"lambda": 0.3},
        "run": {"workers": 0},
    }
    return config_from(merged(base, changes))


def rows(directory: Path) -> dict[str, list[tuple[Any, ...]]]:
    database = sqlite3.connect(directory / "rounds.sqlite")
    found = {
        table: database.execute(f"SELECT * FROM {table} ORDER BY 1, 2, 3, 4").fetchall()
        for table in ("rounds", "participants", "evaluations")
    }
    database.close()
    return found


def assert_same(one: Path, other: Path) -> None:
    assert rows(one) == rows(other)
    for pattern in ("model.safetensors", "checkpoints/*", "clients/*"):
        names = sorted(str(path.relative_to(one)) for path in one.glob(pattern))
        assert names
        assert names == sorted(str(path.relative_to(other)) for path in other.glob(pattern))
        for name in names:
            mine, theirs = load_file(one / name), load_file(other / name)
            assert mine.keys() == theirs.keys()
            assert all(torch.equal(mine[key], theirs[key]) for key in mine), name
