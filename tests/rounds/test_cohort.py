"""Who takes part, and that it depends on the seed and the round alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adafed import AdafedError
from adafed.config.sections import CohortSection
from adafed.rounds.cohort import Sampler, heard


def sampler(count: int = 10, sizes: list[int] | None = None, seed: int = 1, **section: Any) -> Sampler:
    ids = tuple(f"c{k}" for k in range(count))
    return Sampler(CohortSection(**section), ids, np.array(sizes or [5] * count), seed)


@given(st.integers(1, 40), st.floats(0.01, 1.0), st.integers(1, 100))
def test_a_fraction_of_the_federation(count: int, fraction: float, round: int) -> None:
    found = sampler(count, fraction=fraction)
    cohort = found.cohort(round)
    assert len(cohort.clients) == found.largest == max(1, builtin_round(fraction * count))
    assert list(cohort.clients) == sorted(set(cohort.clients))
    assert found.cohort(round) == cohort


def builtin_round(value: float) -> int:
    return int(np.rint(value))


def test_everyone_when_nothing_is_said() -> None:
    assert sampler(7).cohort(1).clients == tuple(range(7))


def test_by_size_the_large_are_chosen_more_often() -> None:
    section = CohortSection(count=1, sampling="size")
    one = Sampler(section, tuple("abcd"), np.array([1, 1, 1, 97]), 1)
    assert sum(one.cohort(round).clients == (3,) for round in range(1, 101)) > 85


def of_ten(**section: Any) -> Sampler:
    return Sampler(CohortSection(**section), tuple("abcdefghij"), np.full(10, 5), 1)


def test_by_loss_the_unseen_come_first_and_then_the_badly_served() -> None:
    found = of_ten(count=4, sampling="loss", power=2.0)
    told: dict[int, float] = {}
    for round in (1, 2, 3):  # two and a half rounds, until everybody was heard
        clients = found.cohort(round, told).clients
        assert len({*told, *clients}) == min(4 * round, 10)
        told |= dict.fromkeys(clients, 1.0)
    told[7] = 100.0
    assert sum(7 in found.cohort(round, told).clients for round in range(4, 54)) == 50
    even = [client for round in range(4, 204) for client in found.cohort(round, dict.fromkeys(range(10), 0.0)).clients]
    assert np.bincount(even, minlength=10).min() > 50  # no loss left: everybody as often


def test_by_loss_nobody_is_out_for_good() -> None:
    found = of_ten(count=1, sampling="loss", power=50.0)
    told = dict.fromkeys(range(10), 10.0) | {3: 0.0}
    assert len(found.cohort(1, told).clients) == 1
    everybody = of_ten(count=10, sampling="loss")
    assert everybody.cohort(1, told).clients == tuple(range(10))


def test_power_of_choice_takes_the_largest_losses_of_its_candidates() -> None:
    told = {client: float(client) for client in range(10)}
    everyone = of_ten(count=3, sampling="power-of-choice", candidates=10)
    assert everyone.cohort(1, told).clients == (7, 8, 9)
    plain = of_ten(count=3, sampling="power-of-choice", candidates=3)  # as many candidates as places: by size
    drawn = {plain.cohort(round, told).clients for round in range(1, 30)}
    assert drawn == {plain.cohort(round, {}).clients for round in range(1, 30)}
    assert len(drawn) > 10
    unseen = everyone.cohort(2, {client: 9.0 for client in range(10) if client != 4})
    assert 4 in unseen.clients


def test_candidates_without_power_of_choice_are_told() -> None:
    with pytest.raises(ValueError, match="candidates are for sampling"):
        CohortSection(count=2, candidates=4)


def test_a_power_that_would_be_ignored_is_told() -> None:
    with pytest.raises(ValueError, match=r'power = 3\.0 is for sampling = "loss"'):
        CohortSection(count=2, power=3.0)
    assert CohortSection(count=2, power=3.0, sampling="loss").power == 3.0


def test_dropouts_do_not_change_who_is_chosen_or_slow() -> None:
    calm, rough = sampler(20, fraction=0.5, stragglers=0.4), sampler(20, fraction=0.5, stragglers=0.4, dropout=0.5)
    lost = 0
    for round in range(1, 20):
        one, other = calm.cohort(round), rough.cohort(round)
        assert one.clients == other.clients
        assert one.shares == other.shares
        assert not one.lost
        assert set(other.answering) | other.lost == set(other.clients)
        lost += len(other.lost)
    assert 50 < lost < 140


def test_stragglers_do_a_share_of_their_steps() -> None:
    shares = [share for round in range(1, 30) for share in sampler(stragglers=0.5).cohort(round).shares.values()]
    slow = [share for share in shares if share < 1]
    assert 0.35 < len(slow) / len(shares) < 0.65
    assert 0 <= min(slow) < 0.2 < 0.8 < max(slow) < 1


def test_clients_cannot_be_chosen_before_they_join() -> None:
    found = sampler(6, join={"c0": 5, "c3": 2})
    assert found.cohort(1).clients == (1, 2, 4, 5)
    assert found.cohort(2).clients == (1, 2, 3, 4, 5)
    assert found.cohort(5).clients == (0, 1, 2, 3, 4, 5)


@pytest.mark.parametrize("sampling", ["uniform", "size"])
def test_a_cohort_among_some_clients(sampling: str) -> None:
    found = sampler(10, fraction=0.4, sampling=sampling, join={"c2": 3})
    some = np.array([1, 2, 5, 6, 7, 9])
    for round in range(3, 12):
        cohort = found.among(round, some)
        assert len(cohort.clients) == 4
        assert set(cohort.clients) <= set(some.tolist())
        assert cohort.clients == tuple(sorted(cohort.clients))
        assert found.among(round, np.arange(10)) == found.cohort(round)
    assert found.among(1, np.array([5, 2])).clients == (5,)  # fewer than asked for, and one is not here yet


def test_these_very_clients_meet_the_fate_of_the_round() -> None:
    found = sampler(10, fraction=0.4, dropout=0.5)
    lost = [found.these(round, np.array([7, 3])) for round in range(1, 20)]
    assert all(cohort.clients == (3, 7) for cohort in lost)
    assert 0 < sum(len(cohort.lost) for cohort in lost) < 38


def test_mistakes_are_told() -> None:
    with pytest.raises(AdafedError, match=r"cohort\.join names client 'zoe', which is not in the federation of 10"):
        sampler(join={"zoe": 2})
    with pytest.raises(AdafedError, match=r"cohort\.count = 11 is more than the federation's 10 clients"):
        Sampler(CohortSection(count=11), tuple(map(str, range(10))), np.ones(10, dtype=np.int64), 0)


def test_who_was_asked_and_told_nothing_counts_as_an_average_client() -> None:
    assert heard({}, [3]) == {"3": 0.0}
    assert heard({"0": 1.0, "1": 5.0, "2": 2.0}, [1, 4]) == {"0": 1.0, "1": 5.0, "2": 2.0, "4": 2.0}
    one = Sampler(CohortSection(count=1, sampling="loss"), tuple("abcd"), np.array([5] * 4), 1)
    told = {int(client): loss for client, loss in heard({"0": 1.0, "1": 1.0, "2": 1.0}, [3]).items()}
    drawn = [one.cohort(t, told).clients[0] for t in range(1, 201)]
    assert 20 < drawn.count(3) < 80
    assert [one.cohort(t, {0: 1.0, 1: 1.0, 2: 1.0}).clients[0] for t in range(1, 9)] == [3] * 8  # unheard of
