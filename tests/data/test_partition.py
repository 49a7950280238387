"""Partitioners: every sample has one owner, the seed decides which, and impossible requests are refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adafed.data.partition import (
    PARTITIONS,
    dirichlet,
    iid,
    left_out,
    names,
    natural,
    partition,
    pathological,
    proportional,
    shards,
)
from adafed.errors import AdafedError

TARGETS = np.random.default_rng(0).integers(0, 10, size=1000)
CASES: list[tuple[str, dict[str, Any]]] = [
    ("iid", {"clients": 7}),
    ("dirichlet", {"clients": 7, "beta": 0.5}),
    ("dirichlet", {"clients": 50, "beta": 0.001}),
    ("shards", {"clients": 7, "shards": 3}),
    ("pathological", {"clients": 7, "classes": 3}),
    ("bernoulli", {"clients": 7, "probability": 0.3}),
    ("bernoulli", {"clients": 50, "probability": 0.01, "alpha": 0.1}),
    ("natural", {}),
]


@pytest.mark.parametrize(("name", "chosen"), CASES)
def test_every_sample_has_one_owner(name: str, chosen: dict[str, Any]) -> None:
    parts = partition(name, TARGETS, TARGETS // 2, chosen, seed=3)
    owned = np.concatenate(parts)
    assert np.array_equal(np.sort(owned), np.arange(1000))
    assert len(left_out(parts, 1000)) == 0
    assert all(len(part) and (np.diff(part) > 0).all() for part in parts)


@pytest.mark.parametrize(("name", "chosen"), CASES[:-1])
def test_the_seed_decides(name: str, chosen: dict[str, Any]) -> None:
    def draw(seed: int | np.random.Generator) -> list[list[int]]:
        return [part.tolist() for part in partition(name, TARGETS, None, chosen, seed=seed)]

    assert draw(3) == draw(3) == draw(np.random.default_rng(3))
    assert draw(3) != draw(4)


def test_iid_sizes_differ_by_at_most_one() -> None:
    sizes = [len(part) for part in iid(TARGETS, clients=7, seed=0)]
    assert max(sizes) - min(sizes) <= 1


def test_dirichlet_follows_beta() -> None:
    """Large beta gives every client the same mix, small beta few classes each."""

    def commonest(beta: float) -> float:
        parts = dirichlet(TARGETS, clients=10, beta=beta, minimum=5, seed=0)
        return float(np.mean([np.bincount(TARGETS[part]).max() / len(part) for part in parts]))

    assert commonest(1e6) < 0.15
    assert commonest(0.05) > 0.5


@settings(max_examples=40, deadline=None)
@given(
    samples=st.integers(40, 300),
    clients=st.integers(1, 20),
    beta=st.floats(0.001, 100),
    minimum=st.integers(0, 2),
    seed=st.integers(0, 2**32),
)
def test_dirichlet_leaves_no_client_below_the_minimum(
    samples: int, clients: int, beta: float, minimum: int, seed: int
) -> None:
    targets = np.random.default_rng(samples).integers(0, 5, size=samples)
    parts = dirichlet(targets, clients=clients, beta=beta, minimum=minimum, seed=seed)
    assert min(len(part) for part in parts) >= minimum
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(samples))


def test_dirichlet_can_fill_every_client_to_the_brim() -> None:
    parts = dirichlet(TARGETS, clients=50, beta=0.01, minimum=20, seed=0)
    assert [len(part) for part in parts] == [20] * 50


def test_shards_of_balanced_classes_hold_one_class_each() -> None:
    targets = np.repeat(np.arange(10), 100)
    parts = shards(targets, clients=50, shards=2, seed=0)
    assert [len(part) for part in parts] == [20] * 50
    assert max(len(np.unique(targets[part])) for part in parts) == 2


def test_pathological_gives_exactly_so_many_classes_and_shares_them_evenly() -> None:
    parts = pathological(TARGETS, clients=20, classes=3, seed=0)
    held = [np.unique(TARGETS[part]) for part in parts]
    assert [len(classes) for classes in held] == [3] * 20
    assert set(np.bincount(np.concatenate(held))) == {6}


def test_pathological_one_class_each() -> None:
    targets = np.repeat(np.arange(3), 70)
    parts = pathological(targets, clients=3, classes=1, seed=5)
    assert sorted(int(targets[part][0]) for part in parts) == [0, 1, 2]
    assert [len(part) for part in parts] == [70, 70, 70]


def test_pathological_leaves_out_classes_nobody_was_dealt() -> None:
    parts = pathological(TARGETS, clients=2, classes=3, seed=0)
    missing = left_out(parts, 1000)
    assert len(np.unique(TARGETS[missing])) == 4
    assert len(missing) + sum(len(part) for part in parts) == 1000


SIZES = [5, 1, 9, 3, 7, 2, 8, 4, 6, 10]  # of ten owners
OWNERS = np.repeat(np.arange(10), SIZES)


@pytest.mark.parametrize("seed", range(5))
def test_so_many_large_owners_among_the_clients(seed: int) -> None:
    parts = natural(OWNERS, clients=6, minimum=2, large=3, large_minimum=6, seed=seed)
    sizes = [len(part) for part in parts]
    assert len(sizes) == 6
    assert sum(size >= 6 for size in sizes) == 3
    assert min(sizes) >= 2
    assert [part[0] for part in parts] == sorted(part[0] for part in parts)
    alone = natural(OWNERS, clients=3, minimum=6, seed=seed)  # these three, by themselves
    assert [part.tolist() for part in alone] == [part.tolist() for part in parts if len(part) >= 6]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"large": 3}, r"^partition\.large and partition\.large_minimum go together"),
        ({"large": 6, "large_minimum": 6}, r"asks for 6 owners with 6 samples or more; there are 5\.$"),
        ({"large": 1, "large_minimum": 6}, r"asks for 5 owners with fewer; there are 4\.$"),
        ({"large": 7, "large_minimum": 2}, r"partition\.large = 7 of partition\.clients = 6"),
    ],
)
def test_large_owners_that_are_not_there_are_told(options: dict[str, int], told: str) -> None:
    with pytest.raises(AdafedError, match=told):
        natural(OWNERS, clients=6, minimum=2, **options, seed=0)


def test_natural_owners() -> None:
    groups = np.array([4, 9, 4, 4, 2, 9])
    assert [part.tolist() for part in natural(groups, seed=0)] == [[4], [0, 2, 3], [1, 5]]
    assert [part.tolist() for part in natural(groups, minimum=2, seed=0)] == [[0, 2, 3], [1, 5]]
    chosen = [natural(groups, clients=1, minimum=2, seed=seed)[0].tolist() for seed in range(20)]
    assert {tuple(part) for part in chosen} == {(0, 2, 3), (1, 5)}


def test_gaps_in_the_labels_are_no_classes() -> None:
    parts = pathological(np.array([3, 3, 7, 7]), clients=2, classes=1, seed=0)
    assert sorted(part.tolist() for part in parts) == [[0, 1], [2, 3]]


@given(st.integers(0, 500), st.lists(st.integers(0, 50), min_size=1, max_size=20))
def test_proportional_shares(total: int, weights: list[int]) -> None:
    w = np.array(weights)
    share = proportional(total, w)
    if w.any():
        assert share.sum() == total
        assert (np.abs(share - total * w / w.sum()) < 1 + 1e-6).all()
        assert (share[w == 0] == 0).all()
    else:
        assert share.sum() == 0


def test_the_table_of_partitioners() -> None:
    assert names() == ("bernoulli", "dirichlet", "iid", "natural", "pathological", "shards")
    assert tuple(PARTITIONS.options("dirichlet")) == ("clients", "beta", "minimum")


@pytest.mark.parametrize(
    ("name", "chosen", "message"),
    [
        (
            "random",
            {"clients": 5},
            "partition.name = 'random' is unknown; there are bernoulli, .*shards, your own as 'module:attribute'$",
        ),
        ("iid", {"clients": 5, "beta": 1.0}, "partition.beta is unknown; partition.name = 'iid' has clients$"),
        ("iid", {}, "partition.clients is missing; partition.name = 'iid' needs it"),
        ("iid", {"clients": 0}, "partition.clients = 0 must be a whole number of at least 1"),
        ("iid", {"clients": 2.5}, "partition.clients is 2.5; it must be a whole number"),
        ("iid", {"clients": True}, "partition.clients is True; it must be a whole number"),
        ("iid", {"clients": 1001}, "partition.clients = 1001 is more than the 1000 samples"),
        ("dirichlet", {"clients": 5, "beta": 0}, "partition.beta = 0.0 must be"),
        ("dirichlet", {"clients": 5, "beta": float("nan")}, "partition.beta = nan"),
        ("dirichlet", {"clients": 5, "beta": "small"}, "partition.beta is 'small'; it must be a number"),
        ("dirichlet", {"clients": 200}, "partition.minimum = 10 is too many for 200 clients .* at most 5 each"),
        ("shards", {"clients": 600, "shards": 2}, "partition.shards = 2 for 600 clients needs 1200 samples"),
        ("shards", {"clients": 5, "shards": 0}, "partition.shards = 0"),
        ("pathological", {"clients": 5, "classes": 11}, "partition.classes = 11, but the data have only 10"),
        ("pathological", {"clients": 1000, "classes": 2}, "partition.clients = 1000 gives class"),
        ("natural", {"clients": 11}, "partition.clients = 11, but only 10 owners"),
        ("natural", {"minimum": 5000}, "partition.minimum = 5000 leaves no owner"),
    ],
)
def test_impossible_requests_name_the_key(name: str, chosen: dict[str, Any], message: str) -> None:
    with pytest.raises(AdafedError, match=message):
        partition(name, TARGETS, TARGETS, chosen, seed=0)


def test_data_without_owners_and_bad_seeds_and_labels() -> None:
    with pytest.raises(AdafedError, match="natural owners: this set has none"):
        partition("natural", TARGETS, None, {}, seed=0)
    with pytest.raises(AdafedError, match="seed = -1"):
        iid(TARGETS, clients=2, seed=-1)
    with pytest.raises(AdafedError, match="labels must be one whole number"):
        iid(np.array([0.5, 1.5]), clients=2, seed=0)


@pytest.mark.parametrize("chosen", [{"large": 2}, {"large_minimum": 5}, {"large": 2, "large_minimum": 5}])
def test_large_owners_without_a_number_of_clients_are_told(chosen: dict[str, int]) -> None:
    owners = np.repeat(np.arange(6), 10)
    with pytest.raises(AdafedError, match=r"partition\.large(_minimum)? = \d has no meaning without partition"):
        natural(owners, seed=0, **chosen)
