"""The search for a step that does no harm, on functions of the step alone."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adafed import AdafedError, optimizer, rule, schedule
from adafed.server.state import Server
from adafed.server.steps import DOUBLINGS, HALVINGS, LONGEST, SHORTEST, Losses, safe_step

Curve = Callable[[float], float]


def parabola(best: float, start: float = 1.0) -> Curve:
    """A loss along the direction: falls to its least at the step `best`, is back at `start` at twice that."""
    return lambda step: start * (1 + ((step - best) ** 2 - best**2))


def told(curves: list[Curve]) -> tuple[Losses, Callable[[float], Losses], list[float]]:
    """Losses before, losses by step, and the steps that were asked for."""
    asked: list[float] = []

    def losses(step: float) -> Losses:
        asked.append(step)
        return {client: curve(step) for client, curve in enumerate(curves)}

    return {client: curve(0.0) for client, curve in enumerate(curves)}, losses, asked


@given(
    best=st.lists(st.floats(-2.0, 5.0, width=32), min_size=1, max_size=8),
    first=st.floats(2.0**-8, 2.0**8),
)
def test_whatever_the_losses_nobody_is_worse_off_and_few_steps_are_tried(best: list[float], first: float) -> None:
    before, losses, asked = told([parabola(one) for one in best])
    found = safe_step(first, 1.0, before, losses)
    assert found.tried == len(asked) == len(set(asked)) <= 1 + max(DOUBLINGS, HALVINGS)
    if found.length:
        assert all(losses(found.length)[client] <= before[client] for client in before)
        assert found.losses == losses(found.length)
        assert first / 2**HALVINGS <= found.length <= first * 2**DOUBLINGS
    else:
        assert found.harmed
        assert all(losses(first / 2**HALVINGS)[client] > before[client] for client in found.harmed)
    assert first / 2 <= found.first <= first * 2**DOUBLINGS


def test_far_away_it_lengthens_round_by_round_until_a_doubling_costs_somebody() -> None:
    before, losses, _ = told([parabola(100.0), parabola(1000.0)])
    lengths, first = [], 1.0
    for _ in range(6):
        found = safe_step(first, 1.0, before, losses)
        lengths, first = [*lengths, found.length], found.first
    assert lengths == [4.0, 16.0, 64.0, 128.0, 128.0, 128.0]  # 256 would have cost the first client, against 128
    assert losses(128.0)[0] < losses(64.0)[0]
    assert losses(256.0)[0] > losses(128.0)[0]


def test_too_long_a_step_is_halved_and_says_for_whom() -> None:
    before, losses, asked = told([parabola(10.0), parabola(0.1)])
    found = safe_step(1.0, 1.0, before, losses)
    assert asked == [1.0, 0.5, 0.25, 0.125]
    assert found.length == 0.125
    assert found.harmed == (1,)
    assert found.first == 0.5  # another cohort may bear more


def test_a_member_that_every_step_costs_holds_the_model_where_it_is() -> None:
    before, losses, asked = told([parabola(1.0), parabola(-1.0)])
    found = safe_step(1.0, 1.0, before, losses)
    assert (found.length, found.harmed, found.losses) == (0.0, (1,), {})
    assert len(asked) == HALVINGS + 1


def test_a_step_that_changes_nothing_is_not_lengthened() -> None:
    before, losses, asked = told([lambda _: 1.0])
    assert safe_step(2.0, 1.0, before, losses).length == 2.0
    assert asked == [2.0, 4.0]


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_a_loss_that_is_no_number_harms(loss: float) -> None:
    before, losses, _ = told([lambda step: loss if step > 0.3 else 1.0 - step])
    assert safe_step(1.0, 1.0, before, losses).length == 0.25


def test_who_does_not_answer_cannot_hold_the_step_and_silence_is_no_consent() -> None:
    one = safe_step(1.0, 1.0, {0: 1.0, 1: 1.0}, lambda step: {0: 1.0 - step / 16})
    assert one.length == 4.0
    nobody = safe_step(1.0, 1.0, {0: 1.0, 1: 1.0}, lambda _: {})
    assert (nobody.length, nobody.harmed) == (0.0, ())
    fewer = safe_step(
        1.0, 1.0, {0: 1.0, 1: 1.0}, lambda step: dict.fromkeys(range(2 if step < 2 else 1), 0.9 - step / 16)
    )
    assert fewer.length == 1.0  # of two that gained, one did not speak of the longer step


def test_the_search_has_ends() -> None:
    gains = safe_step(LONGEST, 1.0, {0: 1.0}, lambda step: {0: -step})
    assert gains.length == gains.first == LONGEST
    loses = safe_step(SHORTEST, 1.0, {0: 1.0}, lambda step: {0: 1.0 + step})
    assert (loses.length, loses.first) == (0.0, SHORTEST)


@pytest.mark.parametrize(
    ("parts", "told"),
    [
        ((optimizer("adam"), schedule("constant")), "server.optimizer = 'adam'"),
        ((optimizer("sgd", momentum=0.9), schedule("constant")), "sgd with momentum"),
        ((optimizer("sgd"), schedule("1/t")), "server.schedule = '1/t'"),
    ],
)
def test_what_steps_otherwise_is_refused(parts: tuple[object, object], told: str) -> None:
    with pytest.raises(AdafedError, match=told):
        Server(rule("adafed"), *parts, 1.0, "safe")  # type: ignore[arg-type]
    Server(rule("adafed"), *parts, 1.0)  # type: ignore[arg-type]
