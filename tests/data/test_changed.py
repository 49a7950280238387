"""A federation with something changed is the other one in all the rest."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from adafed.attacks.labels import FlippedFederation
from adafed.data.base import Federation
from adafed.data.changed import ChangedFederation
from adafed.data.framed import FramedFederation
from adafed.data.noise import NoisyFederation
from adafed.data.sources import open_federation

CHANGES: dict[str, Callable[[Federation], ChangedFederation]] = {
    "noise": lambda one: NoisyFederation(one, clients=1.0, level=0.5, seed=3),
    "flipped": lambda one: FlippedFederation(one, frozenset({1})),
    "framed": lambda one: FramedFederation(one, 6),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_is_not_changed_is_the_others(change: str) -> None:
    whole = open_federation(
        {"name": "digits", "flat": False}, {"name": "iid", "clients": 3}, {"validation": 0.1, "test": 0.2}, seed=1
    )
    changed = CHANGES[change](whole)
    for what in ("name", "ids", "classes", "normalisation"):
        assert getattr(changed, what) == getattr(whole, what)
    np.testing.assert_array_equal(changed.train_sizes, whole.train_sizes)
    assert changed.checksum != whole.checksum
    assert changed.client(1).train.inputs.shape[1:] == changed.input_shape
    np.testing.assert_array_equal(changed.client(1).test.targets, whole.client(1).test.targets)
