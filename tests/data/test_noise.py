"""Labels made wrong on purpose."""

from __future__ import annotations

import numpy as np

from adafed.data.noise import NoisyFederation
from adafed.data.sources import open_federation

SPLIT = {"validation": 0.1, "test": 0.2}


def noisy(clients: float = 0.5, level: float = 0.5, seed: int = 3) -> NoisyFederation:
    right = open_federation({"name": "digits"}, {"name": "iid", "clients": 20}, SPLIT, seed=1)
    return NoisyFederation(right, clients=clients, level=level, seed=seed)


def test_some_clients_have_wrong_training_labels_and_nothing_else_changes() -> None:
    federation = noisy()
    assert 0 < np.count_nonzero(federation.levels) < 20
    for k in range(20):
        before, after = federation.federation.client(k), federation.client(k)
        wrong = (before.train.targets != after.train.targets).mean()
        if federation.levels[k] == 0:
            assert wrong == 0
        else:  # a label drawn anew is right one time in ten
            assert federation.levels[k] >= 0.5
            assert abs(wrong - 0.9 * federation.levels[k]) < 0.25
        np.testing.assert_array_equal(before.train.inputs, after.train.inputs)
        for part in ("validation", "test"):
            np.testing.assert_array_equal(getattr(before, part).targets, getattr(after, part).targets)


def test_the_same_seed_makes_the_same_labels_and_the_checksum_tells_seeds_apart() -> None:
    one, again, other = noisy(), noisy(), noisy(seed=4)
    assert one.checksum == again.checksum
    assert one.checksum not in (other.checksum, one.federation.checksum)
    for k in range(20):
        np.testing.assert_array_equal(one.client(k).train.targets, again.client(k).train.targets)


def test_everybody_may_be_noisy_and_a_level_near_one_leaves_chance() -> None:
    federation = noisy(clients=1.0, level=0.99)
    right = [(federation.federation.client(k).train.targets == federation.client(k).train.targets) for k in range(20)]
    assert 0.02 < np.concatenate(right).mean() < 0.25
