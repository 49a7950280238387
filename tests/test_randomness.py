"""Random choices belong to (seed, round, client), whoever makes them and in whatever company."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adafed.randomness import Seeds, client_word, permutations, round_generator

SEED = st.integers(0, 2**63 - 1)
CLIENTS = st.lists(st.integers(0, 10**6), min_size=1, max_size=30, unique=True)


@given(SEED, st.integers(1, 10**5), CLIENTS, st.integers(0, 5), st.integers(1, 50))
def test_a_clients_order_does_not_depend_on_its_company(
    seed: int, round: int, clients: list[int], epoch: int, samples: int
) -> None:
    together = permutations(seed, round, clients, epoch, samples)
    alone = [permutations(seed, round, [client], epoch, samples)[0] for client in clients]
    assert (together == np.array(alone)).all()
    assert (np.sort(together, axis=1) == np.arange(samples)).all()


def test_orders_differ_by_seed_round_client_and_epoch() -> None:
    base = permutations(1, 2, [3], 0, 30)[0].tolist()
    others = (permutations(9, 2, [3], 0, 30), permutations(1, 9, [3], 0, 30),
              permutations(1, 2, [9], 0, 30), permutations(1, 2, [3], 1, 30))  # fmt: skip
    assert all(other[0].tolist() != base for other in others)
    assert client_word(1, 2, 3) != client_word(1, 3, 2)


def test_orders_are_uniform() -> None:
    """Each of 6 samples comes first about equally often: chi-squared with 5 degrees, 99.9 % at 20.5."""
    first = np.concatenate([permutations(7, round, list(range(200)), 0, 6)[:, 0] for round in range(1, 16)])
    counts = np.bincount(first, minlength=6)
    expected = len(first) / 6
    assert ((counts - expected) ** 2 / expected).sum() < 20.5


@given(SEED)
def test_three_seeds_from_one(seed: int) -> None:
    derived = Seeds.derived(seed, None, None, None)
    assert derived == Seeds.derived(seed, None, None, None)
    assert len({derived.data, derived.model, derived.sampling}) == 3
    assert Seeds.derived(seed, None, 7, None) == Seeds(derived.data, 7, derived.sampling)


def test_the_servers_choices_have_a_stream_for_each_purpose() -> None:
    draws = [round_generator(1, round, purpose).random() for round in (1, 2) for purpose in (1, 2)]
    assert len(set(draws)) == 4
    assert draws[0] == pytest.approx(round_generator(1, 1, 1).random(), abs=0)
