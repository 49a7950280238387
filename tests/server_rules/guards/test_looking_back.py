"""Guards with a history: warnings of losses and stalls, and their state from round to round and in checkpoints."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

import adafed
from adafed import Facts, RuleState
from adafed.server.state import ServerState
from adafed.server_rules.guards import DEFAULT_GUARDS, GUARDS, LookingBack, Step, Verdict

NEEDS = adafed.rule("adafed").needs


def facts(losses: Any, norms: Any, clients: Any = None) -> Facts:
    count = len(losses)
    return Facts(
        clients=tuple(clients or map(str, range(count))),
        losses=np.array(losses, dtype=float),
        norms=np.array(norms, dtype=float),
        gram=np.diag(np.array(norms, dtype=float) ** 2),
    )


def judged(*rounds: Facts) -> Verdict:
    """The last verdict of the history."""
    guard, state = GUARDS.make("history"), {}
    assert isinstance(guard, LookingBack)
    for told in rounds:
        verdict = guard.judge_with(told, NEEDS, state)
        assert verdict.facts is told  # a warning changes nothing
        assert verdict.multipliers is None
        state = json.loads(json.dumps(verdict.state))
    return verdict


def test_a_jump_that_the_others_do_not_make_is_told() -> None:
    verdict = judged(facts([1.0] * 4, [1.0] * 4), facts([0.9, 0.9, 0.9, 50.0], [1.0] * 4))
    assert verdict.warned == {3: "loss 50 is 50 times its last one"}
    assert not judged(facts([1.0] * 4, [1.0] * 4), facts([30.0, 40.0, 20.0, 50.0], [1.0] * 4)).warned
    assert not judged(facts([1.0] * 4, [1.0] * 4), facts([0.9, 0.9, 0.9, 2.0], [1.0] * 4)).warned


def test_a_loss_that_stays_while_the_update_shrinks_is_told() -> None:
    begun = facts([100.0, 2.0, 2.0, 2.0], [1.0] * 4)
    verdict = judged(begun, facts([95.0, 1.0, 1.0, 1.0], [0.05, 0.7, 0.8, 0.9]))
    assert verdict.warned.keys() == {0}
    assert not judged(begun, facts([95.0, 1.0, 1.0, 1.0], [0.9, 0.7, 0.8, 0.9])).warned
    assert not judged(begun, facts([5.0, 1.0, 1.0, 1.0], [0.05, 0.7, 0.8, 0.9])).warned


def test_clients_are_known_by_their_ids() -> None:
    first = facts([1.0, 1.0, 1.0], [1.0] * 3, "abc")
    verdict = judged(first, facts([40.0, 1.0, 1.0], [1.0] * 3, "cab"))
    assert verdict.warned.keys() == {0}
    assert not judged(first, facts([40.0, 1.0, 1.0], [1.0] * 3, "dab")).warned


def test_a_stall_says_who_holds_the_step() -> None:
    guard = GUARDS.make("stall")
    assert isinstance(guard, LookingBack)
    state: dict[str, Any] = {}
    held = Step(("a", "b", "c"), np.array([0.1, 0.8, 0.1]), np.ones(3), norm=0.01, mean_norm=1.0)
    for k in range(1, 8):
        state, warned = guard.learned(held, state)
        assert bool(warned) == (k >= 5)
    assert warned == {1: "holds 80 % of a step that has been below 0.1 of the mean update for 7 rounds"}
    state, warned = guard.learned(Step(("a",), np.ones(1), np.ones(1), norm=0.5, mean_norm=1.0), state)
    assert state == {"rounds": 0}
    assert not warned


def stalled(rounds: int) -> adafed.Aggregate:
    """One client with next to no update and a usual loss holds the step of the shortest vector."""
    rows = torch.randn(5, 40, generator=torch.Generator().manual_seed(0), dtype=torch.float64) + 1.0
    rows[2] *= 1e-3
    state = None
    for t in range(1, rounds + 1):
        out = adafed.aggregate(adafed.rule("adafed"), rows, losses=[1.0] * 5, round=t, state=state, guards=["stall"])
        state = out.state
    return out


def test_the_stall_is_in_the_diagnostics() -> None:
    assert stalled(4).diagnostics.warned == {}
    assert stalled(5).diagnostics.warned.keys() == {"2"}
    assert stalled(5).state.guards == {"0 stall": {"rounds": 5}}


@dataclass(frozen=True)
class Counts(LookingBack):
    """Says how often it was asked."""

    by: int = 1

    def judge_with(self, facts: Facts, needs: frozenset[str], state: dict[str, Any]) -> Verdict:
        return Verdict(facts, state={"count": state.get("count", 0) + self.by})


def test_each_guard_has_its_own_state_from_round_to_round() -> None:
    state = None
    for t in (1, 2, 3):
        out = adafed.aggregate(
            adafed.rule("fedavg"), torch.eye(3), sizes=[1, 1, 1], round=t, state=state, guards=[Counts(), Counts(10)]
        )
        state = out.state
    name = f"{__name__}:Counts"
    assert out.state.guards == {f"0 {name}": {"count": 3}, f"1 {name}": {"count": 30}}


def test_the_state_goes_through_a_checkpoint() -> None:
    rows = torch.randn(6, 20, generator=torch.Generator().manual_seed(0))
    out = adafed.aggregate(adafed.rule("adafed"), rows, losses=[1.0] * 6, guards="default")
    state = ServerState(torch.zeros(20), 20, 1, out.state)
    again = ServerState.unpacked(*state.packed())
    assert again.rule_state is not None
    assert again.rule_state.guards == out.state.guards
    assert out.state.guards["4 lengths"]["medians"]


def test_a_checkpoint_of_before_has_no_state_of_guards() -> None:
    tensors, text = ServerState(torch.zeros(3), 3, 1, RuleState({})).packed()
    assert "guards" not in json.loads(text)
    again = ServerState.unpacked(tensors, text)
    assert again.rule_state == RuleState({})


@pytest.mark.parametrize("rule", adafed.rules())
def test_the_default_guards_go_with_every_rule(rule: str) -> None:
    rows = torch.randn(6, 20, generator=torch.Generator().manual_seed(0), dtype=torch.float64) + 0.3
    told: dict[str, Any] = {
        "losses": [1.0, 2.0, 3.0, 1.0, 2.0, 50.0], "sizes": [5.0] * 6, "accuracies": [0.5] * 6, "local_lr": 0.1
    }  # fmt: skip
    state = None
    for t in (1, 2):
        out = adafed.aggregate(adafed.rule(rule), rows, **told, round=t, state=state, guards="default")
        state = out.state
        assert out.direction.isfinite().all()
        assert torch.allclose(torch.from_numpy(out.coefficients) @ rows, out.direction, atol=1e-9) or rule == "fedfv"
    listed = adafed.aggregate(adafed.rule(rule), rows, **told, guards=list(DEFAULT_GUARDS))
    named = adafed.aggregate(adafed.rule(rule), rows, **told, guards=["default"])
    assert torch.equal(listed.direction, named.direction)


def test_guards_that_have_nothing_to_bound_change_no_bit() -> None:
    random = torch.Generator().manual_seed(0)
    rows = torch.randn(8, 3000, generator=random) + 0.3
    losses, sizes = [1.0, 1.2, 0.9, 1.1, 1.0, 0.8, 1.3, 1.0], [10.0, 12.0, 9.0, 8.0, 20.0, 11.0, 9.0, 10.0]
    for rule in ("adafed", "fedavg", "term"):
        made = adafed.rule(rule)
        plain = adafed.aggregate(made, rows, losses=losses, sizes=sizes)
        guarded = adafed.aggregate(made, rows, losses=losses, sizes=sizes, guards="default")
        assert guarded.diagnostics.bounded == {}
        assert torch.equal(plain.direction, guarded.direction)


def test_a_step_that_remembered_clients_hold_is_not_laid_to_the_cohort() -> None:
    rule = adafed.rule("adafed", gamma=0.0, scale="mean")
    a, b, z = (torch.tensor(row, dtype=torch.float64) for row in ([1.0, 0.0, 0.2], [0.9, 0.1, 0.2], [-0.02, 0.05, 0.0]))
    state, warned = None, {}
    for round_ in range(1, 9):
        names, rows = (["a", "b", "z"], [a, b, z]) if round_ == 1 else (["a", "b"], [a, b])
        found = adafed.aggregate(
            rule, torch.stack(rows), losses=[1.0] * len(rows), clients=names, round=round_, memory="all",
            guards=["stall"], state=state,
        )  # fmt: skip
        state, warned = found.state, found.diagnostics.warned
    (told,) = warned.values()
    share = float(told.split()[1])
    assert share < 10
    assert told.endswith("; clients that are remembered hold most of it")


def test_nobody_holds_a_step_that_is_all_rounding() -> None:
    state = None
    updates = torch.tensor([[1.0, 0.0], [-2.0, 0.0]], dtype=torch.float64)
    for round_ in range(1, 8):
        found = adafed.aggregate(
            adafed.rule("adafed", gamma=0.0), updates, losses=[1.0, 1.0], round=round_, guards=["stall"], state=state
        )
        state = found.state
        assert not found.diagnostics.warned
