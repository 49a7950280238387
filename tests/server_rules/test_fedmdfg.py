"""FedMDFG: nobody's rate is negative, the angle falls, absent clients have a say; and its two simple ends."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import adafed


def run(rows: Any, losses: Any, state: adafed.RuleState | None = None, **options: Any) -> adafed.Aggregate:
    call = {name: options.pop(name) for name in ("clients", "round") if name in options}
    updates = torch.as_tensor(rows, dtype=torch.float64)
    return adafed.aggregate(adafed.rule("fedmdfg", **options), updates, losses=losses, state=state, **call)


def angle(losses: np.ndarray) -> float:
    return float(np.degrees(np.arccos(losses.sum() / np.linalg.norm(losses) / np.sqrt(len(losses)))))


@given(st.integers(0, 2**32 - 1), st.integers(1, 8), st.sampled_from([0.01, 11.25, 90.0]), st.booleans())
def test_no_rate_is_negative(seed: int, count: int, theta: float, absent: bool) -> None:
    random = np.random.default_rng(seed)
    rows = random.normal(size=(count, 30)) * 10 ** random.uniform(-2, 2, (count, 1)) + random.normal(size=30)
    losses = random.uniform(0.0, 3.0, count)
    before = run(random.normal(size=(3, 30)), [1.0, 2.0, 3.0], clients=["x", "y", "z"], absent=absent).state
    outcome = run(rows, losses, before, theta=theta, absent=absent, round=2)
    lengths = np.linalg.norm(rows, axis=1)
    assert (outcome.diagnostics.rates >= -1e-9 * lengths * max(outcome.diagnostics.norm, 1e-300)).all()
    if absent:
        assert before.vectors is not None
        assert (before.vectors @ outcome.direction >= -1e-9 * outcome.diagnostics.norm * 10).all()


def test_the_angle_falls_along_the_direction() -> None:
    """Losses that follow the step to first order: F - eta g . d."""
    random = np.random.default_rng(5)
    rows, losses = random.normal(size=(4, 50)), np.array([0.2, 3.0, 1.0, 1.0])
    lengths = np.linalg.norm(rows, axis=1)
    rows *= (lengths.mean() / lengths)[:, None]  # of one length: then the row of the angle is its gradient
    fair, plain = (run(rows, losses, theta=theta) for theta in (11.25, 90.0))
    assert fair.diagnostics.notes["angle"] == pytest.approx(angle(losses))
    assert fair.diagnostics.notes["fair"]
    assert not plain.diagnostics.notes["fair"]
    step = 1e-5
    assert angle(losses - step * fair.diagnostics.rates) < angle(losses)
    gain = angle(losses - step * plain.diagnostics.rates) - angle(losses - step * fair.diagnostics.rates)
    assert gain > 0  # and by more than without the row


def test_without_angle_and_absent_clients_it_is_mgda_on_updates_of_one_length() -> None:
    random = np.random.default_rng(1)
    rows, losses = random.normal(size=(5, 12)) + 0.2, [1.0, 1.1, 0.9, 1.0, 1.05]
    own = run(rows, losses, absent=False)
    mgda = adafed.aggregate(adafed.rule("fedmgda+", epsilon=1.0), torch.from_numpy(rows))
    assert torch.cosine_similarity(own.direction, mgda.direction, dim=0) == pytest.approx(1.0, abs=1e-12)
    assert not own.diagnostics.notes["fair"]


def test_the_direction_is_as_long_as_the_mean_of_updates_of_one_length() -> None:
    rows = np.array([[2.0, 0.0], [0.0, 4.0]])  # scaled to 3 each: the mean is (1.5, 1.5)
    outcome = run(rows, [1.0, 1.0])
    np.testing.assert_allclose(outcome.direction, [1.5, 1.5])


def test_an_absent_clients_last_update_is_a_row_and_a_returning_ones_is_not() -> None:
    first = run([[1.0, 0.0], [0.0, 1.0]], [1.0, 1.0], clients=["a", "b"])
    assert first.state.memory == (("a", 1), ("b", 1))
    opposed = [[-1.0, 0.5]]  # to a's (1, 0), and not to b's (0, 1)
    gone = run(opposed, [1.0], first.state, clients=["c"], round=2)
    assert gone.direction[0] >= 0.0
    assert gone.diagnostics.rates[0] > 0
    back = run(opposed, [1.0], first.state, clients=["a"], round=2)
    assert back.direction[0] < 0
    assert back.direction[1] > 0.5  # drawn to b
    late = run(opposed, [1.0], first.state, clients=["c"], round=3)  # what is two rounds old has no say
    np.testing.assert_allclose(late.direction, opposed[0])


def test_opposed_clients_are_left_where_they_are() -> None:
    outcome = run([[1.0, 0.0], [-3.0, 0.0]], [1.0, 1.0])
    assert outcome.direction.tolist() == [0.0, 0.0]
    assert outcome.diagnostics.notes["cancelled"]


def test_a_mistake_is_told_in_a_sentence() -> None:
    with pytest.raises(adafed.AdafedError, match=r"^rule\.theta is 91\.0; .* greater than 0 and at most 90$"):
        adafed.rule("fedmdfg", theta=91)


@pytest.mark.parametrize("seed", range(8))
def test_rounding_noise_is_no_direction(seed: int) -> None:
    """A client without a loss makes losses less equal by all it gains: no direction serves the four and the angle."""
    outcome = run(np.random.default_rng(seed).normal(size=(4, 20)), [1.0, 1.0, 1.0, 0.0])
    assert (outcome.diagnostics.rates >= -1e-9).all()
