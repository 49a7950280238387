"""The audit's bounds hold for every list of accuracies, so a printed row that breaks one is impossible."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adafed.paper.audit import std_lower_bound, std_upper_bound

accuracies = st.lists(st.floats(0, 100, allow_subnormal=False), min_size=8, max_size=40)


@given(accuracies, st.integers(1, 3))
def test_bounds_hold_for_any_accuracies(values: list[float], group: int) -> None:
    ordered = np.sort(np.array(values))
    worst, best = float(ordered[:group].mean()), float(ordered[-group:].mean())
    mean, std = float(ordered.mean()), float(ordered.std())
    assert std_lower_bound(mean, worst, best, group / len(values)) <= std + 1e-6
    assert std <= std_upper_bound(worst, best, len(values), group) + 1e-6


@given(st.integers(1, 4), st.integers(10, 60), st.integers(1, 3))
def test_bounds_hold_for_seed_averages(group: int, clients: int, seed: int) -> None:
    ordered = np.sort(np.random.default_rng(seed).uniform(0, 100, (5, clients)) ** 2 / 100, axis=1)
    worst, best = float(ordered[:, :group].mean()), float(ordered[:, -group:].mean())
    mean, std = float(ordered.mean()), float(ordered.std(axis=1).mean())
    assert std_lower_bound(mean, worst, best, group / clients) <= std + 1e-9
    assert std <= std_upper_bound(worst, best, clients, group) + 1e-9


def test_lower_bound_is_met_by_three_even_groups() -> None:
    values = np.array([10.0] * 2 + [50.0] * 16 + [80.0] * 2)
    assert std_lower_bound(float(values.mean()), 10.0, 80.0, 0.1) == pytest.approx(float(values.std()))


@pytest.mark.parametrize("values", [[20.0] * 10 + [60.0] * 10, [60.0] * 19 + [60.0 - 7 * 40.0]])
def test_upper_bound_is_met_by_its_extremes(values: list[float]) -> None:
    ordered, group = np.sort(np.array(values)), 7
    worst, best = float(ordered[:group].mean()), float(ordered[-group:].mean())
    expected = max(0.5, group * 19**0.5 / 20) * (best - worst)
    assert std_upper_bound(worst, best, 20, group) == pytest.approx(expected)
    assert ordered.std() <= expected + 1e-9
