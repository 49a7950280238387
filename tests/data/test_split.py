"""Train, validation and test samples: fractions are kept, nobody trains on test, everybody is tested."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adafed.data.partition import dirichlet, iid, natural, shards
from adafed.data.split import ClientIndices, counts, published, within
from adafed.errors import AdafedError

TARGETS = np.random.default_rng(0).integers(0, 10, size=2000)
IS_TEST = np.arange(2000) >= 1600


def everything(client: ClientIndices) -> list[int]:
    return sorted([*client.train.tolist(), *client.validation.tolist(), *client.test.tolist()])


@pytest.mark.parametrize(
    ("samples", "validation", "test", "expected"),
    [
        (500, 0.1, 0.1, (400, 50, 50)),
        (1, 0.0, 0.0, (1, 0, 0)),
        (2, 0.1, 0.1, (1, 0, 1)),
        (3, 0.1, 0.1, (1, 1, 1)),
        (3, 0.5, 0.4, (1, 1, 1)),
        (10, 0.0, 0.2, (8, 0, 2)),
        (10, 0.2, 0.0, (8, 2, 0)),
    ],
)
def test_counts(samples: int, validation: float, test: float, expected: tuple[int, int, int]) -> None:
    assert counts(samples, validation, test) == expected


@settings(max_examples=50, deadline=None)
@given(size=st.integers(2, 200), validation=st.floats(0, 0.45), test=st.floats(0.01, 0.45), stratified=st.booleans())
def test_within_keeps_the_clients_samples_and_the_fractions(
    size: int, validation: float, test: float, stratified: bool
) -> None:
    part = np.arange(100, 100 + size)
    (client,) = within([part], TARGETS, validation=validation, test=test, stratified=stratified, seed=size)
    assert everything(client) == part.tolist()
    assert (len(client.train), len(client.validation), len(client.test)) == counts(size, validation, test)
    assert len(client.train) >= 1
    assert len(client.test) >= 1


def test_stratified_holds_out_alike_in_every_class() -> None:
    parts = iid(TARGETS, clients=4, seed=0)
    for part, client in zip(parts, within(parts, TARGETS, stratified=True, seed=0), strict=True):
        own = np.bincount(TARGETS[part], minlength=10)
        test = np.bincount(TARGETS[client.test], minlength=10)
        assert (np.abs(test - 0.1 * own) <= 2).all()


def test_small_classes_are_held_out_too() -> None:
    """Ten classes of three samples: rounding class by class would hold out nothing."""
    (client,) = within([np.arange(30)], np.repeat(np.arange(10), 3), stratified=True, seed=0)
    assert (len(client.train), len(client.validation), len(client.test)) == (24, 3, 3)


def test_the_seed_decides() -> None:
    parts = iid(TARGETS, clients=4, seed=0)
    first, again, other = (within(parts, TARGETS, seed=seed) for seed in (1, 1, 2))
    assert [c.test.tolist() for c in first] == [c.test.tolist() for c in again]
    assert [c.test.tolist() for c in first] != [c.test.tolist() for c in other]


def test_published_tests_on_the_test_part_in_the_clients_own_mix() -> None:
    parts = shards(TARGETS[:1600], clients=20, shards=2, seed=0)
    clients = published(parts, TARGETS, IS_TEST, seed=0)
    tests = np.concatenate([client.test for client in clients])
    assert np.array_equal(np.sort(tests), np.arange(1600, 2000))
    for part, client in zip(parts, clients, strict=True):
        assert sorted([*client.train, *client.validation]) == part.tolist()
        assert set(TARGETS[client.test]) <= set(TARGETS[part])
        mix = np.bincount(TARGETS[part], minlength=10) / len(part)
        assert np.abs(np.bincount(TARGETS[client.test], minlength=10) / len(client.test) - mix).max() < 0.2


def test_published_leaves_no_client_untested() -> None:
    parts = dirichlet(TARGETS[:1600], clients=100, beta=0.05, minimum=2, seed=0)
    clients = published(parts, TARGETS, IS_TEST, seed=0)
    assert min(len(client.test) for client in clients) >= 1
    tests = np.concatenate([client.test for client in clients])
    assert len(np.unique(tests)) == len(tests)
    assert all(set(TARGETS[c.test]) <= set(TARGETS[p]) for p, c in zip(parts, clients, strict=True))


def test_published_by_owner() -> None:
    groups = np.arange(2000) % 7
    parts = natural(groups[:1600], clients=3, seed=0)
    for part, client in zip(parts, published(parts, TARGETS, IS_TEST, groups=groups, seed=0), strict=True):
        owner = groups[part[0]]
        assert np.array_equal(client.test, np.flatnonzero(IS_TEST & (groups == owner)))


def test_refusals() -> None:
    parts = iid(TARGETS[:1600], clients=4, seed=0)
    with pytest.raises(AdafedError, match=r"split.test = 1.0 must be a fraction"):
        within(parts, TARGETS, test=1.0, seed=0)
    with pytest.raises(AdafedError, match="leave nothing to train"):
        within(parts, TARGETS, validation=0.5, test=0.5, seed=0)
    with pytest.raises(AdafedError, match="1 samples, too few to train and test on"):
        within([np.array([3])], TARGETS, seed=0)
    with pytest.raises(AdafedError, match="needs data with a published test part"):
        published(parts, TARGETS, None, seed=0)
    with pytest.raises(AdafedError, match="own samples of the test part"):
        published([np.arange(1590, 1610)], TARGETS, IS_TEST, seed=0)
    with pytest.raises(AdafedError, match="leaves client 3 without a test sample"):
        published(parts, TARGETS, np.arange(2000) >= 1997, seed=0)
    groups = (np.arange(2000) < 800).astype(np.int64)
    with pytest.raises(AdafedError, match="owner 1 has no sample in the test part"):
        published(natural(groups[:1600], seed=0), TARGETS, IS_TEST, groups=groups, seed=0)
    with pytest.raises(AdafedError, match="two owners in client 0"):
        published(parts, TARGETS, IS_TEST, groups=np.arange(2000), seed=0)
