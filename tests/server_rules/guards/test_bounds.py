"""The bounds on what a client reports and sends: losses, claims, sample counts, lengths."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import adafed
from adafed import AdafedError, Facts
from adafed.server_rules.guards import GUARDS, LookingBack
from adafed.server_rules.guards.base import median

ADAFED, FEDAVG = adafed.rule("adafed"), adafed.rule("fedavg")
SOLVES, ADDS = ADAFED.needs, FEDAVG.needs


def facts(losses: Any = None, norms: Any = None, sizes: Any = None) -> Facts:
    """Of clients whose updates are at right angles."""
    count = len(next(values for values in (losses, norms, sizes) if values is not None))
    lengths = np.ones(count) if norms is None else np.array(norms, dtype=float)
    return Facts(
        clients=tuple(map(str, range(count))),
        losses=None if losses is None else np.array(losses, dtype=float),
        sizes=None if sizes is None else np.array(sizes, dtype=float),
        norms=lengths,
        gram=np.diag(lengths**2),
    )


positive = st.floats(min_value=1e-6, max_value=1e12)


@given(st.lists(st.floats(-1e300, 1e300), min_size=1, max_size=12))
def test_the_median_is_numpys_to_the_bit(values: list[float]) -> None:
    assert median(values) == np.median(values)


@given(st.lists(positive, min_size=3, max_size=12))
def test_losses_keep_their_order_and_stay_below_the_bound(losses: list[float]) -> None:
    told = facts(losses)
    found = GUARDS.make("losses").judge(told, SOLVES)
    bounded, median = found.facts.need_losses(), np.median(losses)
    assert (bounded <= 2.0 * median * (1 + 1e-12)).all()
    assert (bounded[np.array(losses) <= 1.5 * median] == np.array(losses)[np.array(losses) <= 1.5 * median]).all()
    order = np.argsort(losses, kind="stable")
    assert (np.diff(bounded[order]) >= 0).all()
    assert found.bounded.keys() == set(np.flatnonzero(np.array(losses) > 1.5 * median))


def test_losses_that_differ_still_differ_under_the_bound() -> None:
    bounded = GUARDS.make("losses").judge(facts([1.0, 1.0, 1.0, 5.0, 6.0]), SOLVES).facts.need_losses()
    assert 1.5 < bounded[3] < bounded[4] < 2.0


@pytest.mark.parametrize("minority", [1, 2, 4])
def test_a_minority_does_not_move_the_bound_out_of_reach(minority: int) -> None:
    losses = [1.0] * (9 - minority) + [1e9] * minority
    bounded = GUARDS.make("losses").judge(facts(losses), SOLVES).facts.need_losses()
    assert bounded.max() <= 2.0


def test_losses_are_no_matter_to_a_rule_that_is_not_told_them() -> None:
    told = facts([1.0, 1.0, 1.0, 100.0], sizes=[1.0] * 4)
    assert GUARDS.make("losses").judge(told, ADDS).facts is told
    assert GUARDS.make("claims").judge(told, ADDS).facts is told


def test_a_claim_counts_for_what_the_update_speaks_for() -> None:
    told = facts([1.0, 1.0, 1.0, 2.0, 2.0], norms=[1.0, 1.0, 1.0, 2.0, 0.3])
    found = GUARDS.make("claims").judge(told, SOLVES)
    np.testing.assert_allclose(found.facts.need_losses(), [1.0, 1.0, 1.0, 2.0, 0.6])
    assert found.bounded == {4: "loss 2 counts as 0.6: its update is short for it"}


def test_a_claim_is_never_bounded_below_half_the_median() -> None:
    found = GUARDS.make("claims").judge(facts([1.0, 1.0, 1.0, 2.0], norms=[1.0, 1.0, 1.0, 1e-9]), SOLVES)
    np.testing.assert_allclose(found.facts.need_losses(), [1.0, 1.0, 1.0, 0.5])


@given(st.lists(positive, min_size=3, max_size=12))
def test_sample_counts_stay_below_the_bound_in_their_order(sizes: list[float]) -> None:
    bounded = GUARDS.make("sizes").judge(facts(sizes=sizes), ADDS).facts.need_sizes()
    assert (bounded <= 6.0 * np.median(sizes) * (1 + 1e-12)).all()
    assert (np.diff(bounded[np.argsort(sizes, kind="stable")]) >= 0).all()


@given(st.lists(positive, min_size=3, max_size=12))
def test_lengths_stay_within_their_bounds(norms: list[float]) -> None:
    median = np.median(norms)
    for needs, least in ((SOLVES, 0.3), (ADDS, 0.0)):
        verdict = GUARDS.make("lengths").judge(facts(norms=norms), needs)
        counted = np.array(norms) * (1.0 if verdict.multipliers is None else verdict.multipliers)
        assert (counted <= 2.5 * median * (1 + 1e-9)).all()
        assert (counted >= least * median * (1 - 1e-9)).all()
        within = (np.array(norms) <= 2.5 * median) & (np.array(norms) >= least * median)
        assert (counted[within] == np.array(norms)[within]).all()


def test_lengths_are_held_to_what_was_usual_before() -> None:
    """One client alone, or a whole cohort that has diverged, is no median of itself."""
    guard = GUARDS.make("lengths")
    assert isinstance(guard, LookingBack)
    state: dict[str, Any] = {}
    for _ in range(4):
        verdict = guard.judge_with(facts(norms=[1.0, 1.1, 0.9]), ADDS, state)
        assert verdict.multipliers is None
        assert verdict.state is not None
        state = verdict.state
    verdict = guard.judge_with(facts(norms=[1e6, 1e7]), ADDS, state)
    assert verdict.multipliers is not None
    np.testing.assert_allclose(verdict.multipliers * [1e6, 1e7], [2.5, 2.5])


def test_the_history_of_lengths_is_of_so_many_rounds() -> None:
    guard = GUARDS.make("lengths", rounds=3)
    assert isinstance(guard, LookingBack)
    state: dict[str, Any] = {}
    for length in range(1, 9):
        found = guard.judge_with(facts(norms=[float(length)] * 3), ADDS, state).state
        assert found is not None
        state = found
    assert state == {"medians": [6.0, 7.0, 8.0]}


def test_an_update_of_zeros_is_left_to_the_rule() -> None:
    assert GUARDS.make("lengths").judge(facts(norms=[1.0, 1.0, 0.0]), SOLVES).multipliers is None


@pytest.mark.parametrize("rule", ["fedavg", "adafed", "qffl", "term"])
def test_a_diverged_client_does_not_cost_the_model(rule: str) -> None:
    """Its loss and its update are finite and beyond all measure."""
    random = torch.Generator().manual_seed(0)
    rows = torch.randn(8, 50, generator=random, dtype=torch.float64) + 0.5
    told: dict[str, Any] = {"losses": [1.0] * 7 + [7e12], "sizes": [10.0] * 8, "local_lr": 0.1}
    wild = rows.clone()
    wild[7] *= 1e9
    usual = adafed.aggregate(adafed.rule(rule), rows[:7], **_of_first(told, 7)).diagnostics.norm
    plain = adafed.aggregate(adafed.rule(rule), wild, **told).direction
    guarded = adafed.aggregate(adafed.rule(rule), wild, **told, guards="default")
    assert guarded.diagnostics.norm < 3.0 * usual
    if rule == "fedavg":
        assert plain.norm() > 1e6 * usual
    assert "7" in guarded.diagnostics.bounded


@pytest.mark.parametrize("rule", adafed.rules())
def test_the_bound_for_accidents_leaves_healthy_rounds_as_they_are_to_the_bit(rule: str) -> None:
    random = torch.Generator().manual_seed(0)
    states: list[Any] = [None, None]
    for t in (1, 2, 3):
        rows = torch.randn(8, 50, generator=random) + 0.5
        rows *= torch.logspace(0, 1.9, 8)[torch.randperm(8, generator=random), None]  # by chance, not by accident
        told: dict[str, Any] = {"losses": [1.0 + k for k in range(8)], "sizes": [10.0] * 8, "local_lr": 0.1}
        told |= {"accuracies": [0.1 * k for k in range(8)], "round": t, "federation": 8}
        plain, guarded = (
            adafed.aggregate(adafed.rule(rule), rows, **told, state=state, guards=guards)
            for state, guards in zip(states, ((), ["diverged"]), strict=True)
        )
        assert torch.equal(plain.direction, guarded.direction)
        assert (plain.coefficients == guarded.coefficients).all()
        assert (plain.diagnostics.rates == guarded.diagnostics.rates).all()
        assert plain.diagnostics.notes == guarded.diagnostics.notes
        assert not guarded.diagnostics.bounded
        states = [plain.state, guarded.state]


def lengths_counted(*rounds: list[float]) -> list[list[float]]:
    """What the bound for accidents makes of the lengths of these rounds, one after the other."""
    guard = GUARDS.make("diverged")
    assert isinstance(guard, LookingBack)
    state: dict[str, Any] = {}
    counted = []
    for norms in rounds:
        verdict = guard.judge_with(facts(norms=norms), ADDS, state)
        factors = np.ones(len(norms)) if verdict.multipliers is None else verdict.multipliers
        assert set(verdict.bounded) == set(np.flatnonzero(factors < 1))
        counted.append((factors * norms).tolist())
        state = json.loads(json.dumps(verdict.state))
    return counted


@pytest.mark.parametrize("cohort", [1, 2, 8])
def test_an_accident_counts_as_thirty_usual_updates_however_small_the_cohort(cohort: int) -> None:
    others = [1.0] * (cohort - 1)
    for when in (1, 5):
        *_, last = lengths_counted(*[[1.0] * cohort] * when, [*others, 1e9])
        assert last == pytest.approx([*others, 30.0])


def test_an_accident_in_the_first_round_is_held_to_the_others() -> None:
    assert lengths_counted([1.0, 1.0, 1e9]) == [pytest.approx([1.0, 1.0, 30.0])]


def test_one_that_goes_on_when_all_others_are_done_is_heard_whole() -> None:
    done = [1e-6] * 5
    rounds = [[1.0, 2.0, 1.5, 1.2, 0.8, 1.1], *[[*done, 3.0]] * 20]
    assert lengths_counted(*rounds) == rounds


def test_updates_that_stay_longer_than_before_are_soon_usual() -> None:
    *_, first, second, third = lengths_counted([0.0] * 3, [1.0] * 3, *[[100.0] * 3] * 3)
    assert first == pytest.approx([30.0] * 3)
    assert second == third == [100.0] * 3


def test_where_most_do_not_move_nobody_is_bounded() -> None:
    assert GUARDS.make("diverged").judge(facts(norms=[0.0, 0.0, 5.0]), ADDS).multipliers is None


def _of_first(told: dict[str, Any], count: int) -> dict[str, Any]:
    return {key: value[:count] if isinstance(value, list) else value for key, value in told.items()}


@pytest.mark.parametrize(
    ("name", "options", "sentence"),
    [
        ("losses", {"times": 0.5}, "losses.times is 0.5; it must be a finite number at least 1"),
        ("losses", {"most": 1.2}, "losses.most is 1.2; it must be a finite number at least 1.5"),
        ("claims", {"least": 1.5}, "claims.least is 1.5; it must be a finite number at least 0 and at most 1"),
        ("sizes", {"most": 1}, "sizes.most is 1.0; it must be a finite number at least 3"),
        ("lengths", {"most": 0.9}, "lengths.most is 0.9; it must be a finite number at least 1"),
        ("lengths", {"least": 1.1}, "lengths.least is 1.1; it must be a finite number at least 0 and at most 1"),
        ("lengths", {"rounds": -1}, "lengths.rounds is -1; it must be a finite number at least 0"),
        ("diverged", {"most": 1}, "diverged.most is 1.0; it must be a finite number greater than 1"),
    ],
)
def test_options_that_make_no_sense(name: str, options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(AdafedError) as error:
        GUARDS.make(name, **options)
    assert str(error.value) == sentence


@pytest.mark.parametrize(("usual", "length"), [(1e-30, 1e300), (1.0, 1.7e308)])
def test_a_diverged_update_that_no_number_shortens_is_left_out(usual: float, length: float) -> None:
    """The second is so long that its length is no float64."""
    updates = torch.full((5, 50), usual, dtype=torch.float64)
    updates[4] = length
    out = adafed.aggregate(adafed.rule("fedavg"), updates, sizes=[1] * 5, guards=["diverged"])
    assert list(out.diagnostics.dropped) == ["4"]
    torch.testing.assert_close(out.direction, updates[0])


@pytest.mark.parametrize(
    ("name", "options", "most"), [("adafed", {}, 0.7), ("drfl", {"q": 2.0}, 0.7), ("term", {"t": -1.0}, 0.9)]
)
def test_a_loss_far_below_zero_takes_no_step_alone(name: str, options: dict[str, Any], most: float) -> None:
    """Rules that take |f|, and one that was asked to serve the smallest first; unbounded, each gave it everything."""
    updates = torch.from_numpy(np.random.default_rng(0).normal(size=(6, 200)) + 0.3)
    rule = adafed.rule(name, **options)
    found = adafed.aggregate(rule, updates, losses=[1.0, 1.1, 0.9, 1.0, 1.2, -1e6], sizes=[10] * 6, guards="default")
    assert "5" in found.diagnostics.bounded
    assert abs(found.coefficients[5]) < most * np.abs(found.coefficients).sum()


@pytest.mark.parametrize("guard", ["losses", "claims"])
def test_signs_are_kept(guard: str) -> None:
    losses, norms = np.array([1.0, 1.0, -1.0, 90.0]), [1.0, 1.0, 1.0, 1.0]
    up = GUARDS.make(guard).judge(facts(losses, norms), SOLVES).facts.need_losses()
    down = GUARDS.make(guard).judge(facts(-losses, norms), SOLVES).facts.need_losses()
    np.testing.assert_array_equal(up, -down)
    assert up[3] < 3.0
