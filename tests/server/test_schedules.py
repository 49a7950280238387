"""Rate schedules: their values, and the sums that the convergence theorems ask for."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

import adafed
from adafed import AdafedError


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        ("constant", {}, {1: 1.0, 2: 1.0, 1000: 1.0}),
        ("1/t", {}, {1: 1.0, 2: 0.5, 10: 0.1}),
        ("1/t", {"after": 10}, {1: 1.0, 11: 0.5, 91: 0.1}),
        ("1/sqrt(t)", {}, {1: 1.0, 4: 0.5, 100: 0.1}),
        ("1/sqrt(t)", {"after": 5}, {1: 1.0, 16: 0.5}),
        ("step", {}, {1: 1.0, 100: 1.0, 101: 0.89, 201: 0.89**2}),
        ("step", {"factor": 0.5, "every": 1}, {1: 1.0, 2: 0.5, 4: 0.125}),
    ],
)
def test_values(name: str, options: dict[str, Any], expected: dict[int, float]) -> None:
    schedule = adafed.schedule(name, **options)
    assert {round_: schedule(round_) for round_ in expected} == pytest.approx(expected)


@pytest.mark.parametrize("name", adafed.schedules())
def test_starts_at_the_base_rate_and_never_rises(name: str) -> None:
    schedule = adafed.schedule(name)
    values = [schedule(round_) for round_ in range(1, 500)]
    assert values[0] == 1.0
    assert all(later <= earlier for earlier, later in itertools.pairwise(values))
    assert values[-1] > 0.0


def between(name: str, power: int, start: int, stop: int, **options: Any) -> float:
    schedule = adafed.schedule(name, **options)
    return sum(schedule(round_) ** power for round_ in range(start, stop))


@pytest.mark.parametrize("after", [1.0, 20.0])
def test_theorem_rates(after: float) -> None:
    """1/t: the sum over every doubling of t is bounded below (it diverges), that of squares halves (it converges).
    1/sqrt(t): goes to 0, and the sum diverges, growing with every doubling."""
    for start in (1000, 4000):
        assert between("1/t", 1, start, 2 * start, after=after) > 0.6 * after
        assert between("1/t", 2, 2 * start, 4 * start, after=after) < 0.55 * between(
            "1/t", 2, start, 2 * start, after=after
        )
        assert between("1/sqrt(t)", 1, 2 * start, 4 * start, after=after) > between(
            "1/sqrt(t)", 1, start, 2 * start, after=after
        )
    assert adafed.schedule("1/sqrt(t)", after=after)(10**9) < 1e-3


@pytest.mark.parametrize(
    ("name", "options", "sentence"),
    [
        ("cosine", {}, r"server.schedule.name = 'cosine' is unknown; there are 1/sqrt\(t\), 1/t, constant, step"),
        ("constant", {"rate": 1}, "server.schedule.rate is unknown; server.schedule.name = 'constant' has no options"),
        ("1/t", {"after": 0}, "server.schedule.after is 0.0; it must be a finite number greater than 0"),
        ("step", {"every": 0}, "server.schedule.every is 0; it must be a finite number at least 1"),
        ("step", {"every": 1.5}, "server.schedule.every is 1.5; it must be a whole number"),
        ("step", {"factor": -1}, "server.schedule.factor is -1.0"),
    ],
)
def test_mistakes_are_told_in_a_sentence(name: str, options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(AdafedError, match=sentence):
        adafed.schedule(name, **options)
