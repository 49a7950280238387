"""FedFV's memory and its corner cases; the oracles and the contract cover the rest."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import adafed


def run(rule: adafed.Rule, rows: Any, losses: Any, **call: Any) -> adafed.Aggregate:
    return adafed.aggregate(rule, torch.tensor(rows, dtype=torch.float64), losses=losses, **call)


def test_updates_come_back_as_rows_and_expire() -> None:
    rule = adafed.rule("fedfv", tau=2)
    first = run(rule, [[1.0, 0.0], [0.0, 1.0]], [1, 2], clients=["a", "b"], round=1)
    assert first.state.memory == (("a", 1), ("b", 1))
    assert first.state.vectors is not None
    assert first.state.vectors.tolist() == [[1.0, 0.0], [0.0, 1.0]]
    second = run(rule, [[2.0, 2.0]], [1], clients=["a"], round=2, state=first.state)
    assert second.state.memory == (("b", 1), ("a", 2))  # the newer update of a replaces the older
    assert second.state.vectors is not None
    assert second.state.vectors.tolist() == [[0.0, 1.0], [2.0, 2.0]]
    third = run(rule, [[5.0, 0.0]], [1], clients=["c"], round=3, state=second.state)
    assert third.state.memory == (("a", 2), ("c", 3))  # b's is two rounds old in round 3, and too old for round 4
    later = run(rule, [[5.0, 0.0]], [1], clients=["d"], round=9, state=third.state)
    assert later.state.memory == (("d", 9),)


def test_no_memory_without_tau() -> None:
    outcome = run(adafed.rule("fedfv", tau=0), [[1.0, 0.0]], [1])
    assert outcome.state.memory == ()
    assert outcome.state.vectors is None


def test_projection_off_a_remembered_opponent() -> None:
    """(1, 1) opposes the remembered (-1, 0): what is left is (0, 1), at the mean's length sqrt(2)."""
    rule = adafed.rule("fedfv", tau=1)
    first = run(rule, [[-1.0, 0.0], [3.0, 1.0]], [1, 2], clients=["a", "b"], round=1)
    second = run(rule, [[1.0, 1.0]], [1], clients=["c"], round=2, state=first.state)
    np.testing.assert_allclose(second.direction, [0.0, np.sqrt(2)], atol=1e-12)
    assert second.diagnostics.norm == pytest.approx(np.sqrt(2))
    assert len(second.coefficients) == 1  # the remembered row's own coefficient is not a client's


def test_opponents_of_one_round_are_added_up() -> None:
    """(0, 2) opposes (1, -1) and (-1, -1) but not (0, 3); their sum (0, -2) takes all of it away."""
    rule = adafed.rule("fedfv", tau=1, alpha=1.0)
    first = run(rule, [[1.0, -1.0], [-1.0, -1.0], [0.0, 3.0]], [1, 2, 3], clients=["a", "b", "c"])
    second = run(rule, [[0.0, 2.0]], [1], clients=["d"], round=2, state=first.state)
    assert second.direction.tolist() == [0.0, 0.0]
    assert second.diagnostics.notes == {"cancelled": True}


def test_returning_client_is_not_its_own_opponent() -> None:
    rule = adafed.rule("fedfv", tau=1)
    first = run(rule, [[-1.0, 0.0]], [1], clients=["a"])
    again = run(rule, [[1.0, 1.0]], [1], clients=["a"], round=2, state=first.state)
    np.testing.assert_allclose(again.direction, [1.0, 1.0])


def test_memory_that_has_expired_has_no_say() -> None:
    rule = adafed.rule("fedfv", tau=1)
    first = run(rule, [[-1.0, 0.0]], [1], clients=["a"], round=1)
    late = run(rule, [[1.0, 1.0]], [1], clients=["c"], round=3, state=first.state)
    np.testing.assert_allclose(late.direction, [1.0, 1.0])


def test_dropped_client_is_remembered_by_its_last_good_update() -> None:
    rule = adafed.rule("fedfv", tau=3)
    first = run(rule, [[1.0, 0.0], [0.0, 1.0]], [1, 2], clients=["a", "b"], round=1)
    second = run(rule, [[float("nan"), 0.0], [0.0, 2.0]], [1, 2], clients=["a", "b"], round=2, state=first.state)
    assert second.state.memory == (("a", 1), ("b", 2))
    nobody = run(rule, [[0.0, 0.0]], [1], clients=["b"], round=3, state=second.state)
    assert nobody.direction.tolist() == [0.0, 0.0]
    assert nobody.state.memory == second.state.memory


def test_what_rounding_leaves_of_a_cancelled_sum_is_not_lengthened() -> None:
    """In one dimension everything is projected away; 1e-17 of it must not come back at full length."""
    outcome = run(adafed.rule("fedfv", alpha=0.0), [[0.1], [-0.3], [0.7], [-0.5]], [1, 2, 3, 4])
    assert outcome.direction.tolist() == [0.0]
    assert outcome.diagnostics.notes == {"cancelled": True}


def test_no_conflict_gives_the_mean() -> None:
    rows = [[1.0, 0.0], [1.0, 1.0], [0.0, 2.0]]
    np.testing.assert_allclose(run(adafed.rule("fedfv"), rows, [3, 2, 1]).direction, np.mean(rows, axis=0))


def test_a_window_longer_than_the_run_takes_no_time() -> None:
    everything = run(adafed.rule("fedfv", tau=10**15), [[1.0, 0.0]], [1])
    assert everything.direction.tolist() == run(adafed.rule("fedfv", tau=1), [[1.0, 0.0]], [1]).direction.tolist()
