"""The measures of fairness: hand-checked numbers, and what must hold for any accuracies."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adafed.errors import AdafedError
from adafed.metrics import (
    Fairness,
    angle,
    best,
    divergence,
    fairness,
    formulas,
    gini,
    improvement,
    jain,
    sampling_floor,
    worst,
)

shares = st.lists(st.floats(0, 1), min_size=1, max_size=60)
positive_shares = st.lists(st.floats(1e-3, 1), min_size=1, max_size=60)


def near(value: object) -> object:
    return pytest.approx(value, rel=1e-9, abs=1e-9)


def numbers(measures: Fairness) -> list[float]:
    return [value for value in dataclasses.astuple(measures) if value is not None]


def test_hand_checked_numbers() -> None:
    m = fairness([0.2, 0.4, 0.6, 0.8], test_sizes=[11, 11, 11, 11], losses=[1.0, 2.0, 3.0, 4.0])
    assert m.clients == 4
    assert m.mean == near(0.5)
    assert m.std == near(math.sqrt(0.05))
    assert (m.worst_5, m.worst_10, m.best_5, m.best_10) == (0.2, 0.2, 0.8, 0.8)
    assert m.angle == near(math.degrees(math.atan(math.sqrt(0.05) / 0.5)))
    p = [0.1, 0.2, 0.3, 0.4]
    assert m.kl == near(sum(x * math.log(4 * x) for x in p))
    assert m.jain == near(4.0 / (4 * 1.2))
    assert m.gini == near(0.25)
    assert m.floor == near(math.sqrt(3 / 4 * (0.16 + 0.24 + 0.24 + 0.16) / 4 / 10))
    assert m.excess == near(math.sqrt(0.05 - 0.015))
    assert m.loss_std == near(math.sqrt(1.25))
    assert m.loss_range == 3.0


def test_three_clients_of_the_published_fashion_mnist_row() -> None:
    """Shirt, pullover and T-shirt at 71.29, 81.46 and 82.86 have a standard deviation of 5.16 points."""
    m = fairness([0.7129, 0.8146, 0.8286])
    assert round(100 * m.std, 2) == 5.16
    assert round(100 * m.mean, 2) == 78.54


def test_seven_points_are_chance_at_fifty_samples() -> None:
    floor = sampling_floor([0.5] * 100, [50] * 100)
    assert floor is not None
    assert round(100 * floor) == 7
    assert fairness([0.5] * 100, test_sizes=[50] * 100).excess == 0.0


def test_sampling_floor_is_what_equal_clients_show() -> None:
    measured = np.random.default_rng(0).binomial(50, 0.5, size=4000) / 50
    m = fairness(measured, test_sizes=np.full(4000, 50))
    assert m.floor == pytest.approx(m.std, rel=0.05)


@pytest.mark.parametrize("clients", [1, 2, 3, 10])
def test_few_equal_clients_show_less_and_what_is_left_is_what_they_differ_by(clients: int) -> None:
    """Deviations from so few clients' own mean are smaller: on average over many federations the floor knows it."""
    draws, sizes = np.random.default_rng(clients), [50] * clients
    true = np.linspace(0.75, 0.85, clients) if clients > 1 else np.array([0.8])
    found = [fairness(one, test_sizes=sizes) for one in draws.binomial(50, true, size=(4000, clients)) / 50]
    floors = [0.0 if one.floor is None else one.floor**2 for one in found]
    variance = float(np.mean([one.std**2 for one in found]))
    assert variance - float(np.mean(floors)) == pytest.approx(float(true.var()), abs=2e-4)


@pytest.mark.parametrize(("clients", "five", "ten"), [(1, 1, 1), (20, 1, 2), (21, 2, 3), (100, 5, 10), (140, 7, 14)])
def test_tails_hold_the_ceiling_of_their_share(clients: int, five: int, ten: int) -> None:
    a = np.arange(clients) / clients
    assert worst(a, 5) == near(a[:five].mean())
    assert worst(a, 10) == near(a[:ten].mean())
    assert best(a, 5) == near(a[clients - five :].mean())
    assert best(a, 10) == near(a[clients - ten :].mean())


@given(shares)
def test_the_order_of_the_clients_does_not_matter(a: list[float]) -> None:
    shuffled = np.random.default_rng(len(a)).permutation(a)
    assert numbers(fairness(shuffled)) == near(numbers(fairness(a)))


@given(positive_shares, st.floats(0.01, 1))
def test_scaling_moves_mean_and_std_and_leaves_the_rest(a: list[float], scale: float) -> None:
    m, scaled = fairness(a), fairness(np.array(a) * scale)
    for name in ("mean", "std", "worst_5", "worst_10", "best_5", "best_10"):
        assert getattr(scaled, name) == near(scale * getattr(m, name))
    for name in ("angle", "kl", "jain", "gini"):
        assert getattr(scaled, name) == pytest.approx(getattr(m, name), rel=1e-6, abs=1e-6)


@given(shares)
def test_bounds(a: list[float]) -> None:
    m, k, slack = fairness(a, test_sizes=[20] * len(a)), len(a), 1e-9
    assert all(math.isfinite(value) for value in numbers(m))
    assert m.worst_5 <= m.worst_10 + slack
    assert m.worst_10 <= m.mean + slack
    assert m.mean <= m.best_10 + slack
    assert m.best_10 <= m.best_5 + slack
    assert 0 <= m.std <= 0.5 + slack
    assert 0 <= m.angle <= math.degrees(math.acos(1 / math.sqrt(k))) + 1e-5
    assert 0 <= m.kl <= math.log(k) + slack
    assert 1 / k - slack <= m.jain <= 1
    assert 0 <= m.gini <= 1 - 1 / k + slack
    assert m.excess is not None
    assert 0 <= m.excess <= m.std + slack


@given(shares)
def test_angle_is_the_one_to_the_all_ones_vector(a: list[float]) -> None:
    norm = float(np.linalg.norm(a))
    if norm > 1e-6:
        cosine = min(1.0, sum(a) / (norm * math.sqrt(len(a))))
        assert angle(a) == pytest.approx(math.degrees(math.acos(cosine)), abs=1e-5)


@given(shares)
def test_jain_and_angle_say_the_same(a: list[float]) -> None:
    if max(a) > 1e-6:
        assert jain(a) == near(math.cos(math.radians(angle(a))) ** 2)


@given(positive_shares)
def test_gini_is_the_mean_absolute_difference(a: list[float]) -> None:
    differences = np.abs(np.subtract.outer(a, a)).mean()
    assert gini(a) == near(differences / (2 * np.mean(a)))


@pytest.mark.parametrize("a", [[0.0], [0.0] * 7, [0.25], [0.25] * 8])
def test_even_accuracies_show_no_unfairness(a: list[float]) -> None:
    m = fairness(a)
    assert (m.std, m.angle, m.kl, m.gini, m.jain) == (0.0, 0.0, 0.0, 0.0, 1.0)


def test_one_client_has_everything() -> None:
    a = [0.0, 0.0, 0.0, 1.0]
    assert divergence(a) == near(math.log(4))
    assert jain(a) == near(0.25)
    assert gini(a) == near(0.75)
    assert angle(a) == near(60.0)


def test_a_single_test_sample_is_left_out_of_the_floor() -> None:
    assert sampling_floor([0.5, 1.0], [26, 1]) == near(0.1 * math.sqrt(1 / 2))
    m = fairness([1.0, 0.0], test_sizes=[1, 1])
    assert (m.floor, m.excess) == (None, None)


def test_what_was_not_given_is_none() -> None:
    m = fairness([0.5, 0.6])
    assert (m.floor, m.excess, m.loss_std, m.loss_range) == (None, None, None, None)


def test_improvement() -> None:
    result = improvement([1.0, 2.0, 3.0, 4.0], [0.5, 2.0, 3.5, 1.0])
    assert result.rho == 0.75
    assert result.mean_decrease == near(0.75)


@given(st.lists(st.tuples(st.floats(0, 100), st.floats(0, 100)), min_size=1, max_size=30))
def test_improvement_of_any_cohort(pairs: list[tuple[float, float]]) -> None:
    before, after = zip(*pairs, strict=True)
    result = improvement(before, after)
    assert 0 <= result.rho <= 1
    assert improvement(before, before).rho == 1.0
    assert result.mean_decrease == near(np.mean(before) - np.mean(after))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([],), "one number for each client"),
        (([[0.5]],), "accuracies has shape"),
        ((["high"],), "list of numbers"),
        (([0.5, float("nan")],), r"accuracies\[1\] = nan is not a finite number"),
        (([0.5, 50.0],), r"accuracies\[1\] = 50 lies outside \[0, 1\]"),
        (([0.5, -0.1],), "lies outside"),
        (([0.5], [10, 20]), "test_sizes has 2 numbers for 1 clients"),
        (([0.5, 0.5], [10, 0]), r"test_sizes\[1\] = 0 is not a positive whole number"),
        (([0.5, 0.5], [10, 2.5]), r"test_sizes\[1\] = 2.5"),
        (([0.5], None, [1.0, 2.0]), "losses has 2 numbers"),
        (([0.5], None, [float("inf")]), r"losses\[0\] = inf"),
    ],
)
def test_bad_input_is_told_in_one_sentence(arguments: tuple[object, ...], message: str) -> None:
    with pytest.raises(AdafedError, match=message):
        fairness(*arguments)  # type: ignore[arg-type]


def test_bad_tail_and_bad_cohort() -> None:
    with pytest.raises(AdafedError, match="percent = 0"):
        worst([0.5], 0)
    with pytest.raises(AdafedError, match="after has 1 numbers for 2 clients"):
        improvement([1.0, 2.0], [1.0])


def test_numbers_beyond_range_are_measured_or_left_out() -> None:
    assert formulas.standard_deviation([1e200, 0.0]) == pytest.approx(5e199)
    assert formulas.standard_deviation([1e308, -1e308]) == pytest.approx(1e308)
    assert formulas.spread([1e308, -1e308]) is None
    assert formulas.spread([3.0, 1.0]) == 2.0


@pytest.mark.parametrize("percent", [0, 101, 0.5, 12.5])
def test_a_percentage_is_a_whole_number(percent: Any) -> None:
    with pytest.raises(AdafedError, match=rf"^percent = {percent} must be a whole number between 1 and 100\.$"):
        formulas.worst([0.1, 0.2, 0.3], percent)
