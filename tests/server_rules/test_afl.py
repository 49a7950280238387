"""What AFL's state means under partial participation; the oracles cover its arithmetic."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import adafed


def run(cohort: list[str], losses: list[float], **call: Any) -> adafed.Aggregate:
    updates = torch.ones(len(cohort), 3, dtype=torch.float64)
    return adafed.aggregate(adafed.rule("afl", step=0.1), updates, losses=losses, clients=cohort, **call)


def total(state: adafed.RuleState) -> float:
    numbers = state.numbers
    return float(sum(numbers["shares"].values()) + numbers["unseen"] * numbers["each"])


def test_known_federation_starts_uniform() -> None:
    first = run(["0", "1"], [1.0, 3.0], federation=4)
    np.testing.assert_allclose(first.coefficients, [0.5, 0.5])
    # 1/4 each; gains .1 and .3; the projection takes .1 off each of the four.
    assert first.state.numbers["shares"] == pytest.approx({"0": 0.25, "1": 0.45})
    assert first.state.numbers["unseen"] == 2
    assert first.state.numbers["each"] == pytest.approx(0.15)
    second = run(["1", "2"], [0.0, 0.0], federation=4, state=first.state)
    np.testing.assert_allclose(second.coefficients, [0.75, 0.25])
    assert total(second.state) == pytest.approx(1.0)


def test_newcomer_enters_with_its_share() -> None:
    first = run(["a", "b"], [0.0, 1.0])
    assert first.state.numbers["shares"] == pytest.approx({"a": 0.45, "b": 0.55})
    second = run(["b", "c"], [0.0, 0.0], state=first.state)  # three clients now: c has 1/3, b has 2/3 of .55
    np.testing.assert_allclose(second.coefficients, np.array([0.55 * 2 / 3, 1 / 3]) / (0.55 * 2 / 3 + 1 / 3))
    assert total(second.state) == pytest.approx(1.0)


def test_cohort_without_any_share_is_averaged() -> None:
    rule = adafed.rule("afl", step=10.0)
    updates = torch.eye(3, dtype=torch.float64)
    state = adafed.aggregate(rule, updates, losses=[9.0, 0.0, 0.0]).state
    assert state.numbers["shares"] == {"0": 1.0, "1": 0.0, "2": 0.0}
    outcome = adafed.aggregate(rule, updates[1:], losses=[0.0, 0.0], clients=[1, 2], state=state)
    np.testing.assert_allclose(outcome.coefficients, [0.5, 0.5])


@given(
    st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=6, unique=True), min_size=1, max_size=8),
    st.sampled_from([None, 6, 10, 50]),  # 6: no cohort is larger, and more clients than it may be seen in the end
    st.floats(0, 50),
    st.integers(0, 1000),
)
def test_shares_always_sum_to_one(cohorts: list[list[int]], federation: int | None, step: float, seed: int) -> None:
    generator = np.random.default_rng(seed)
    rule, state, seen = adafed.rule("afl", step=step), None, set()
    for round_, cohort in enumerate(cohorts, start=1):
        seen |= set(cohort)
        updates = torch.ones(len(cohort), 2, dtype=torch.float64)
        outcome = adafed.aggregate(
            rule,
            updates,
            losses=generator.uniform(-1, 5, len(cohort)),
            clients=cohort,
            round=round_,
            federation=federation,
            state=state,
        )
        state = outcome.state
        assert outcome.coefficients.sum() == pytest.approx(1.0)
        assert (outcome.coefficients >= 0).all()
        assert total(state) == pytest.approx(1.0)
        assert state.numbers["unseen"] + len(state.numbers["shares"]) == max(federation or 0, len(seen))
        assert min([*state.numbers["shares"].values(), state.numbers["each"]]) >= 0


def test_federation_that_grows_keeps_room_for_the_new() -> None:
    """From 4 to 8 clients: what the four held is halved, and the new ones hold 1/8 each, among the unseen."""
    first = run(["0", "1"], [0.0, 0.0], federation=4)
    second = run(["0"], [0.0], federation=8, state=first.state)
    assert second.state.numbers["shares"] == pytest.approx({"0": 0.125, "1": 0.125})
    assert second.state.numbers["unseen"] == 6
    assert second.state.numbers["each"] == pytest.approx(0.125)
    third = run(["0"], [2.0], federation=8, state=second.state)
    fourth = run(["0", "9"], [0.0, 0.0], federation=16, state=third.state)
    assert total(fourth.state) == pytest.approx(1.0)
    assert fourth.coefficients[0] == pytest.approx((0.3 / 2) / (0.3 / 2 + (6 * 0.1 / 2 + 8 / 16) / 14))
