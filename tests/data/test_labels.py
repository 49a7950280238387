"""The labels that clients hold are those they train on, counted without reading their inputs."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from adafed.config.configuration import config_from
from adafed.data.arrays import ArraysFederation
from adafed.data.base import Federation
from adafed.data.folder import FolderFederation
from adafed.data.labels import label_counts
from adafed.data.noise import NoisyFederation
from adafed.data.synthetic import SyntheticFederation
from adafed.engines.station import open_from


def counted(federation: Federation) -> dict[str, dict[str, int]]:
    """By reading every client whole."""
    found = {}
    for k, client in enumerate(federation.ids):
        counts = Counter(federation.client(k).train.targets.tolist())
        found[client] = {str(label): counts[label] for label in sorted(counts)}
    return found


@pytest.fixture
def arrays() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    random = np.random.default_rng(0)
    return {f"c{k}": (random.random((20 + k, 3)).astype(np.float32), random.integers(4, size=20 + k)) for k in range(4)}


def test_of_a_data_set_that_is_shared_out() -> None:
    federation = open_from(config_from({"partition": {"name": "shards", "clients": 10, "shards": 2}}))
    assert label_counts(federation) == counted(federation)


def test_of_arrays_and_of_files(arrays: dict[str, tuple[np.ndarray, np.ndarray]], tmp_path: Path) -> None:
    federation = ArraysFederation("mine", arrays)
    assert label_counts(federation) == counted(federation)
    for client, (x, y) in arrays.items():
        np.savez(tmp_path / f"{client}.npz", x=x, y=y)
    files = FolderFederation(tmp_path)
    assert label_counts(files) == counted(files)


def test_wrong_labels_are_counted_as_they_are_given(arrays: dict[str, tuple[np.ndarray, np.ndarray]]) -> None:
    right = ArraysFederation("mine", arrays)
    noisy = NoisyFederation(right, clients=1.0, level=0.5, seed=3)
    assert label_counts(noisy) == counted(noisy)
    assert label_counts(noisy) != label_counts(right)


def test_clients_that_are_made_when_asked_for_are_not_made_for_this() -> None:
    assert label_counts(SyntheticFederation(clients=5)) is None
    assert label_counts(NoisyFederation(SyntheticFederation(clients=5), clients=1.0, level=0.5, seed=3)) is None
