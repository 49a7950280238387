"""Guards that look at how updates lie to each other: copies, the veto, multi-Krum."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

import adafed
from adafed import Facts
from adafed.server_rules.guards import GUARDS, LookingBack, Step

SOLVES, ADDS = adafed.rule("adafed").needs, adafed.rule("fedavg").needs
Rows = npt.NDArray[np.float64]


def cohort(count: int = 9, length: int = 60, agree: float = 1.0, seed: int = 0) -> Rows:
    """Updates with a part in common, `agree` times as long as their own."""
    random = np.random.default_rng(seed)
    own, common = random.standard_normal((count, length)), random.standard_normal(length)
    found: Rows = own + agree * common
    return found


def facts(rows: Rows, losses: Any = None, clients: Any = None) -> Facts:
    count = len(rows)
    return Facts(
        clients=tuple(clients or map(str, range(count))),
        losses=np.ones(count) if losses is None else np.array(losses, dtype=float),
        sizes=np.arange(1.0, count + 1),
        norms=np.linalg.norm(rows, axis=1),
        gram=rows @ rows.T,
    )


def aggregated(rows: Rows, guards: Any, rule: str = "adafed", **options: Any) -> adafed.Aggregate:
    return adafed.aggregate(
        adafed.rule(rule, **options), torch.from_numpy(rows), losses=[1.0] * len(rows), sizes=[1.0] * len(rows),
        guards=guards,
    )  # fmt: skip


# Copies


@pytest.mark.parametrize("times", [1.0, 0.01, 40.0])
@pytest.mark.parametrize("noise", [0.0, 0.01])
def test_copies_count_as_one(times: float, noise: float) -> None:
    rows = cohort(agree=0.3)
    copy = times * (rows[4] + noise * cohort(seed=1)[0])
    told = facts(np.vstack([rows, copy]), losses=[1.0] * 9 + [3.0])
    verdict = GUARDS.make("copies").judge(told, SOLVES)
    assert verdict.dropped.keys() == {9}
    assert "client 4" in verdict.dropped[9]
    assert verdict.facts.need_losses()[4] == 2.0
    assert verdict.facts.need_sizes()[4] == 7.5
    assert verdict.bounded == {4: "stands for 2 clients with the same update"}


def test_colluders_who_send_one_update_have_one_voice() -> None:
    rows = cohort(7, agree=0.3)
    verdict = GUARDS.make("copies").judge(facts(np.vstack([rows, -rows[[0, 0, 0]]])), SOLVES)
    assert verdict.dropped.keys() == {8, 9}


def test_copying_changes_nothing_for_the_others() -> None:
    rows = cohort(agree=0.3)
    for rule in ("adafed", "fedavg"):
        alone = aggregated(rows, ["copies"], rule).direction
        copied = aggregated(np.vstack([rows, rows[4]]), ["copies"], rule).direction
        assert torch.allclose(alone, copied, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("agree", [0.0, 1.0, 10.0, 1000.0])
def test_clients_that_are_alike_are_no_copies(agree: float) -> None:
    assert GUARDS.make("copies").judge(facts(cohort(agree=agree)), SOLVES).dropped == {}


@given(st.integers(0, 10**6), st.integers(3, 12), st.floats(-8.0, 0.0), st.sampled_from([0.0, 1.0, 30.0]))
def test_a_copy_is_as_near_as_the_median_distance_says(seed: int, count: int, power: float, agree: float) -> None:
    """The median is looked for only where one may be; the answer is as if it always were."""
    rows = cohort(count, agree=agree, seed=seed)
    rows[0] = rows[1] + 10.0**power * rows[0]
    unit = rows / np.linalg.norm(rows, axis=1)[:, None]
    squared = (1.0 - unit @ unit.T)[np.triu_indices(count, 1)]
    bound = 0.03**2 * np.median(squared)
    assume(abs(squared.min() - bound) > 1e-9 * bound + 1e-12)
    verdict = GUARDS.make("copies").judge(facts(rows), SOLVES)
    assert bool(verdict.dropped) == (squared.min() < bound)


def test_updates_that_are_all_the_same_are_left_alone() -> None:
    assert GUARDS.make("copies").judge(facts(np.ones((5, 8))), SOLVES).dropped == {}


# The veto


@pytest.mark.parametrize("times", [0.1, 1.0, 5.0, 100.0])
@pytest.mark.parametrize("claimed", [1.0, 100.0])
@pytest.mark.parametrize("seed", range(5))
def test_an_opposing_client_takes_away_no_more_than_half(times: float, claimed: float, seed: int) -> None:
    rows = cohort(seed=seed)
    without = aggregated(rows, (), gamma=0.0).direction
    told = np.vstack([rows, -times * rows[3]])
    plain = adafed.aggregate(
        adafed.rule("adafed"), torch.from_numpy(told), losses=[1.0] * 9 + [claimed], sizes=[1.0] * 10
    ).direction
    guarded = adafed.aggregate(
        adafed.rule("adafed"), torch.from_numpy(told), losses=[1.0] * 9 + [claimed], sizes=[1.0] * 10, guards="default"
    )
    assert float(guarded.direction @ without) >= 0.5 * float(without @ without)
    assert float(plain @ without) < 0.5 * float(without @ without)
    assert "9" in guarded.diagnostics.bounded
    assert "9" not in guarded.diagnostics.dropped


@given(st.integers(0, 10**6), st.floats(0.1, 30.0), st.integers(4, 12))
def test_an_opposing_update_goes_along_with_the_mean_of_the_others(seed: int, times: float, count: int) -> None:
    rows = np.vstack([cohort(count, seed=seed), -times * cohort(count, seed=seed)[0]])
    verdict = GUARDS.make("veto").judge(facts(rows), SOLVES)
    if verdict.mixing is None:
        return
    mixed, mean = verdict.mixing @ rows, rows[:-1].mean(axis=0)
    assert set(verdict.bounded) == {count}
    assert mixed[-1] @ mean >= mean @ mean * (1 - 1e-9)
    np.testing.assert_array_equal(mixed[:-1], rows[:-1])


@given(st.integers(0, 10**6), st.integers(4, 14), st.floats(0.0, 1.5), st.integers(0, 4))
def test_who_opposes_is_who_the_cosines_say(seed: int, count: int, agree: float, turned: int) -> None:
    rows = cohort(count, agree=agree, seed=seed)
    rows[:turned] *= -1.0
    unit = rows / np.linalg.norm(rows, axis=1)[:, None]
    cosines, others = unit @ unit.T, unit.sum(axis=0) - unit
    lengths = np.linalg.norm(others, axis=1)
    along = (unit * others).sum(axis=1)
    opposing = (
        ((cosines < 0).sum(axis=1) >= 0.65 * (count - 1))
        & (along < -0.2 * lengths)
        & (lengths >= 1.1 * np.sqrt(count - 1))
    )
    few = 2 * opposing.sum() < count
    verdict = GUARDS.make("veto").judge(facts(rows), SOLVES)
    assert verdict.bounded.keys() == (set(np.flatnonzero(opposing).tolist()) if few else set())


def test_what_it_says_beside_is_left_in_it() -> None:
    """An opposing update keeps its part at right angles to the others' mean: it is bounded, not dropped."""
    rows = cohort()
    own = np.zeros(60)
    own[0] = 3.0
    mean = rows.mean(axis=0)
    own -= own @ mean / (mean @ mean) * mean
    told = np.vstack([rows, own - 0.5 * mean])
    verdict = GUARDS.make("veto", opposed=0.0, cosine=0.0, length=100.0).judge(facts(told), SOLVES)
    assert verdict.mixing is not None
    mixed = (verdict.mixing @ told)[-1]
    np.testing.assert_allclose(mixed - own, mean, atol=1e-9)


def test_where_nobody_agrees_nobody_is_bounded() -> None:
    simplex = np.eye(8) - 1.0 / 8.0  # each opposes all others, and they have no step in common
    assert GUARDS.make("veto").judge(facts(simplex), SOLVES).mixing is None


@pytest.mark.parametrize("seed", range(5))
def test_clients_that_agree_are_left_alone(seed: int) -> None:
    for agree in (0.0, 0.5, 3.0):
        rows = cohort(10, 3000, agree=agree, seed=seed)
        assert GUARDS.make("veto").judge(facts(rows), SOLVES).mixing is None


def test_where_updates_are_only_added_a_short_one_is_left_alone() -> None:
    rows = np.vstack([cohort(), -0.3 * cohort()[:1]])
    assert GUARDS.make("veto").judge(facts(rows), SOLVES).mixing is not None
    assert GUARDS.make("veto").judge(facts(rows), ADDS).mixing is None


def test_half_of_the_clients_are_not_bounded_by_the_other_half() -> None:
    rows = cohort(5, agree=3.0)
    assert GUARDS.make("veto").judge(facts(np.vstack([rows, -rows])), SOLVES).mixing is None


def test_mixing_is_in_the_coefficients_of_what_was_sent() -> None:
    rows = np.vstack([cohort(), -cohort()[3]])
    for rule in ("adafed", "fedavg", "fedmgda+"):
        out = aggregated(rows, [GUARDS.make("veto", longer=0.5)], rule)
        assert "9" in out.diagnostics.bounded
        assert torch.allclose(torch.from_numpy(out.coefficients @ rows), out.direction, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(out.diagnostics.rates, rows @ out.direction.numpy(), rtol=1e-8, atol=1e-9)
        verdict = GUARDS.make("veto", longer=0.5).judge(facts(rows), adafed.rule(rule).needs)
        assert verdict.mixing is not None
        made = aggregated(verdict.mixing @ rows, (), rule).direction
        assert torch.allclose(out.direction, made, rtol=1e-7, atol=1e-9)


def test_what_a_rule_remembers_is_what_it_saw() -> None:
    rows = np.vstack([cohort(), -cohort()[3]])
    verdict = GUARDS.make("veto").judge(facts(rows), SOLVES)
    assert verdict.mixing is not None
    state = aggregated(rows, ["veto"], "fedfv", tau=3).state
    assert state.vectors is not None
    np.testing.assert_allclose(state.vectors.numpy(), verdict.mixing @ rows, atol=1e-12)


def test_who_has_opposed_lately_stays_bounded_when_the_others_agree_less() -> None:
    guard, state = GUARDS.make("veto"), {}
    assert isinstance(guard, LookingBack)
    opposed = facts(np.vstack([cohort(), -cohort()[3]]))
    apart = np.eye(10)
    apart[9] = -0.1 * apart[:9].sum(axis=0) + apart[9]  # at odds with all, who have nothing in common
    late = facts(apart)
    assert guard.judge_with(late, SOLVES, state).mixing is None
    for _ in range(6):
        verdict = guard.judge_with(opposed, SOLVES, state)
        state = json.loads(json.dumps(verdict.state))
    assert state.keys() == {"9"}
    assert guard.judge_with(late, SOLVES, state).bounded.keys() == {9}
    for _ in range(25):
        verdict = guard.judge_with(facts(cohort(10)), SOLVES, state)
        assert verdict.mixing is None  # it goes along with them now
        state = state if verdict.state is None else verdict.state
    assert state == {}


@pytest.mark.parametrize(("honest", "bounded"), [(True, False), (False, True)])
def test_who_keeps_its_promises_may_oppose(honest: bool, bounded: bool) -> None:
    """The step goes against the last client's update; an honest one's loss rises, a liar's falls."""
    guard, state = GUARDS.make("veto"), {}
    assert isinstance(guard, LookingBack)
    rows, loss = np.vstack([cohort(), -cohort()[3]]), 1.0
    for _ in range(8):
        verdict = guard.judge_with(facts(rows, losses=[1.0] * 9 + [loss]), SOLVES, state)
        assert verdict.state is not None
        step = Step(tuple(map(str, range(10))), np.ones(10) / 10, np.array([1.0] * 9 + [-1.0]), 1.0, 1.0)
        state, warned = guard.learned(step, json.loads(json.dumps(verdict.state)))
        assert not warned
        loss *= 1.1 if honest else 0.9
    assert (verdict.mixing is not None) == bounded


def test_a_client_that_never_opposed_is_not_kept_in_mind() -> None:
    guard = GUARDS.make("veto")
    assert isinstance(guard, LookingBack)
    verdict = guard.judge_with(facts(np.vstack([cohort(), -cohort()[3]])), SOLVES, {})
    assert verdict.state is not None
    assert verdict.state.keys() == {"9"}


# Multi-Krum


def test_colluders_are_dropped() -> None:
    rows = cohort(7, agree=3.0)
    liars = -3.0 * rows[:3]
    verdict = GUARDS.make("krum", share=0.3).judge(facts(np.vstack([rows, liars])), SOLVES)
    assert verdict.dropped.keys() == {7, 8, 9}


@pytest.mark.parametrize(
    ("count", "share", "dropped"), [(10, 0.3, 3), (10, 0.1, 1), (3, 0.3, 0), (3, 0.34, 0), (9, 0.3, 2)]
)
def test_it_drops_as_many_as_it_is_told(count: int, share: float, dropped: int) -> None:
    assert len(GUARDS.make("krum", share=share).judge(facts(cohort(count)), SOLVES).dropped) == dropped


@pytest.mark.parametrize("at", [0, 3, 7])
def test_who_does_not_move_takes_nobodys_veto_away(at: int) -> None:
    """A zero update among them, under a rule that keeps it: all else is as if it had not come."""
    honest = torch.ones(6, 50) + 0.3 * torch.randn(6, 50, generator=torch.Generator().manual_seed(0))
    sent, rule = torch.cat([honest, -2 * torch.ones(1, 50)]), adafed.rule("fedavg", weighted=False)
    names = [f"{k}" for k in range(7)]
    alone = adafed.aggregate(rule, sent, clients=names, guards=["veto"])
    idle = torch.cat([sent[:at], torch.zeros(1, 50), sent[at:]])
    beside = adafed.aggregate(rule, idle, clients=[*names[:at], "idle", *names[at:]], guards=["veto"])
    assert alone.diagnostics.bounded.keys() == beside.diagnostics.bounded.keys() == {"6"}
    torch.testing.assert_close(7 / 8 * alone.direction, beside.direction)


def test_the_veto_bounds_a_loss_by_its_size() -> None:
    honest = torch.ones(6, 50) + 0.3 * torch.randn(6, 50, generator=torch.Generator().manual_seed(0))
    sent = torch.cat([honest, -2 * torch.ones(1, 50)])
    found = [
        adafed.aggregate(adafed.rule("adafed"), sent, losses=[1.0] * 6 + [claimed], guards=["veto"]).coefficients
        for claimed in (1e6, -1e6)
    ]
    np.testing.assert_allclose(found[0], found[1])
