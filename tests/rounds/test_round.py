"""The server's half of a round, without any engine: replies in, the next state and the record out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from adafed import AdafedError, config_from, optimizer, rule, schedule
from adafed.client_rules.base import Ask, ClientRule, Draw, Plan, Setting, TellingReply, Tensors
from adafed.config.sections import CohortSection
from adafed.rounds.cohort import Sampler
from adafed.rounds.records import improved
from adafed.rounds.replies import ACCURACY, LOSS, RUNNING, STEPS, Reply
from adafed.rounds.round import Ruled, ServerHalf
from adafed.rounds.statistics import BAD_STATISTICS
from adafed.server.state import Server
from adafed.server_rules import Facts, Rule
from adafed.server_rules.guards import Guard, Verdict, resolved

LENGTH = 6


def half(name: str = "fedavg", *client_rules: ClientRule, **options: Any) -> ServerHalf:
    server = Server(rule(name, **options), optimizer("sgd"), schedule("constant"), 0.5)
    setting = Setting(clients=4, rounds=9, seed=0)
    ruled = tuple(Ruled(one, one.plan(setting)) for one in client_rules)
    return ServerHalf(server, name_of=lambda client: f"c{client}", federation=5, client_rules=ruled)


def reply(client: int, statistics: Sequence[float] = (), seed: int | None = None, **changes: Any) -> Reply:
    update = torch.randn(LENGTH, generator=torch.Generator().manual_seed(client if seed is None else seed))
    numbers = {LOSS: 1.0 + client, RUNNING: 0.5, ACCURACY: 0.5, STEPS: 3.0}
    return Reply(**{"client": client, "samples": 10 + client, "update": update, "statistics": torch.tensor(statistics),
                    "numbers": numbers} | changes)  # fmt: skip


def test_a_round_moves_the_model_and_tells_all() -> None:
    side = half()
    state = side.first_state(torch.zeros(LENGTH), LENGTH)
    replies = [reply(0), reply(2)]
    found = side.conclude(state, 1, replies, {1: "did not answer"})
    mean = (10 * replies[0].update + 12 * replies[1].update) / 22
    torch.testing.assert_close(found.state.parameters, -0.5 * mean)
    assert found.state.round == 1
    assert found.record.server_rate == 0.5
    assert [one.client for one in found.record.participants] == ["c0", "c1", "c2"]
    assert [one.dropped for one in found.record.participants] == [None, "did not answer", None]
    assert [one.steps for one in found.record.participants] == [3, None, 3]
    assert found.record.participants[0].coefficient == pytest.approx(10 / 22)


@pytest.mark.parametrize("name", ["fedavg", "adafed"])
def test_statistics_are_averaged_by_samples_and_bad_ones_cost_the_round(name: str) -> None:
    side = half(name)
    state = side.first_state(torch.zeros(LENGTH + 2), LENGTH)
    replies = [reply(0, [1.0, 2.0]), reply(1, [float("nan"), 0.0]), reply(3, [3.0, 4.0])]
    found = side.conclude(state, 1, replies, {})
    torch.testing.assert_close(
        found.state.parameters[LENGTH:], (10 * torch.tensor([1.0, 2.0]) + 13 * torch.tensor([3.0, 4.0])) / 23
    )
    assert [one.dropped for one in found.record.participants] == [None, BAD_STATISTICS, None]
    assert found.record.participants[1].coefficient == 0.0
    assert found.record.participants[1].descent is None
    without = side.conclude(state, 1, [replies[0], replies[2]], {})
    assert torch.equal(found.state.parameters, without.state.parameters)


def test_nobody_left_changes_nothing_but_the_round() -> None:
    side = half()
    state = side.first_state(torch.ones(LENGTH + 1), LENGTH)
    for replies, told in (([], "nobody"), ([reply(0, [float("inf")])], f"client c0: {BAD_STATISTICS}")):
        found = side.conclude(state, 1, replies, {}, nobody="nobody")
        assert torch.equal(found.state.parameters, state.parameters)
        assert found.state.round == 1
        assert told in str(found.record.skipped)
        assert found.record.norm is None


@dataclass(frozen=True)
class Counting(ClientRule):
    """A plan that uses every hook."""

    summary = "counts"
    sends = ("seen",)
    sums = ("seen", "update")
    keeps = ("something",)

    def plan(self, setting: Setting) -> Plan:
        return CountingPlan()


class CountingPlan(Plan):
    average = rule("fedavg", weighted=False)

    def fresh(self, length: int) -> Tensors:
        return {"total": torch.zeros(length), "learned": torch.zeros(1)}

    def server_rule(self, round: int, own: Rule) -> Rule:
        return self.average if round == 1 else own

    def summed(self, known: Tensors, sums: Tensors) -> tuple[Tensors, torch.Tensor | None]:
        return known | {"total": known["total"] + sums["seen"]}, 10.0 * sums["update"]

    def learned(self, round: int, known: Tensors, replies: Sequence[TellingReply], ask: Ask) -> Tensors:
        told = sum(one.told["number"] for one in replies) + sum(one.told["more"] for one in ask([2, 3], known))
        return known | {"learned": known["learned"] + told}

    def notes(self, round: int, known: Tensors) -> dict[str, Any]:
        return {"learned": float(known["learned"])}


def test_a_client_rule_has_its_sums_its_term_its_questions_and_its_notes() -> None:
    side = half("fedavg", Counting(), weighted=True)
    state = side.first_state(torch.zeros(LENGTH), LENGTH)
    name = Counting.name
    told = [
        {"told": {name: {"number": 3}}, "vectors": {f"{name}.seen": torch.full((LENGTH,), float(k))}} for k in (1, 2)
    ]
    replies = [reply(k, **more) for k, more in enumerate(told)]
    asked: list[Any] = []

    def ask(rule_: ClientRule, plan: Plan, clients: Sequence[int], known: Any, after: Any) -> list[TellingReply]:
        asked.append((rule_, after.round, list(clients)))
        return [TellingReply(client, {"more": client}) for client in clients]

    found = side.conclude(state, 1, replies, {}, ask=ask)
    both = replies[0].update + replies[1].update
    torch.testing.assert_close(found.state.parameters, -0.5 * (both / 2 + 10.0 * both))  # the plan's own average
    assert found.state.known[f"{name}.total"].tolist() == [3.0] * LENGTH
    assert found.state.known[f"{name}.learned"].item() == 3 + 3 + 2 + 3
    assert found.record.notes["learned"] == 11.0
    assert found.state.kept == {"0": 1, "1": 1}
    assert asked == [(Counting(), 1, [2, 3])]
    assert side.rule(2) is side.server.rule


def test_what_guards_need_is_needed_too() -> None:
    @dataclass(frozen=True)
    class Wary(Guard):
        needs = frozenset({"accuracies"})

        def judge(self, facts: Facts, needs: frozenset[str]) -> Verdict:
            return Verdict(facts)

    side = half("fedavg", weighted=False)
    assert side.needed_numbers() == []
    assert replace(side, guards=(Wary(),)).needed_numbers() == [ACCURACY]
    assert half("adafed").needed_numbers() == [LOSS]


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_vector_that_is_not_finite_is_left_out_of_its_sum(bad: float) -> None:
    side = half("fedavg", Counting())
    state = side.first_state(torch.zeros(LENGTH), LENGTH)
    name = f"{Counting.name}.seen"
    told: dict[str, Any] = {"told": {Counting.name: {"number": 0}}}
    replies = [
        reply(0, vectors={name: torch.full((LENGTH,), bad)}, **told),
        reply(1, vectors={name: torch.ones(LENGTH)}, **told),
    ]
    found = side.conclude(state, 1, replies, {})
    assert found.state.known[name.replace("seen", "total")].tolist() == [1.0] * LENGTH


def test_improvement_counts_the_cohort_that_was_measured() -> None:
    side = half()
    record = side.conclude(side.first_state(torch.zeros(LENGTH), LENGTH), 1, [reply(0), reply(1)], {2: "gone"}).record
    better = improved(record, {"c0": 0.5, "c1": 2.5, "c2": 0.0})
    assert better.rho == 0.5
    assert better.mean_decrease == pytest.approx((0.5 - 0.5) / 2)
    assert [one.stepped for one in better.participants] == [0.5, 2.5, None]
    assert improved(record, {}).rho is None
    assert improved(record, {"c0": float("inf"), "c1": 1.0}).rho is None


@given(order=st.permutations(range(4)))
def test_updates_as_one_matrix_or_one_by_one_are_the_same_round(order: list[int]) -> None:
    side = half("adafed")
    state = side.first_state(torch.zeros(LENGTH), LENGTH)
    replies = [reply(k, seed=order[k]) for k in range(4)]
    apart = side.conclude(state, 1, replies, {})
    together = side.conclude(state, 1, replies, {}, updates=torch.stack([one.update for one in replies]))
    assert torch.equal(apart.state.parameters, together.state.parameters)
    assert apart.record == together.record


@dataclass(frozen=True)
class Choosy(ClientRule):
    summary = "chooses cohorts"
    personalises = True

    def plan(self, setting: Setting) -> Plan:
        class Chooses(Plan):
            def draw(self, round: int, known: Tensors) -> Draw | None:
                return None

        return Chooses()


@dataclass(frozen=True)
class Picky(Choosy):
    personalises = False


def test_two_rules_that_want_the_same_are_told() -> None:
    config = config_from({})
    config.__dict__["parts"] = replace(config.parts, client_rules=(Choosy(), Picky()))
    with pytest.raises(AdafedError, match=r"Choosy and .*Picky each plan who takes part in a round; leave all but one"):
        ServerHalf.of(config, ["a", "b"])
    with pytest.raises(AdafedError, match=r"^ditto and .*:Ditto each give clients a model of their own; leave all but"):
        config_from({"ditto": {}, "client": {"rules": ["adafed.client_rules.ditto:Ditto"]}})


def test_what_a_guard_drops_or_bounds_is_not_summed_either() -> None:
    @dataclass(frozen=True)
    class Strict(Guard):
        def judge(self, facts: Facts, needs: frozenset[str]) -> Verdict:
            return Verdict(facts, np.full(facts.count, 0.5), dropped={0: "not today"})

    side = replace(half("fedavg", Counting(), weighted=False), guards=(Strict(),))
    name = f"{Counting.name}.seen"
    told: dict[str, Any] = {"told": {Counting.name: {"number": 0}}}
    replies = [reply(k, vectors={name: torch.full((LENGTH,), 10.0**k)}, **told) for k in range(3)]
    found = side.conclude(side.first_state(torch.zeros(LENGTH), LENGTH), 1, replies, {})
    assert found.state.known[name.replace("seen", "total")].tolist() == [55.0] * LENGTH
    assert found.state.kept == {"1": 1, "2": 1}


@pytest.mark.parametrize("term", [torch.zeros(2), torch.full((LENGTH,), float("nan")), [0.0] * LENGTH])
def test_a_term_that_is_no_finite_vector_is_told(term: Any) -> None:
    class Bad(CountingPlan):
        def summed(self, known: Tensors, sums: Tensors) -> tuple[Tensors, torch.Tensor | None]:
            return known, term

    side = replace(half(), client_rules=(Ruled(Counting(), Bad()),))
    vectors = {f"{Counting.name}.seen": torch.zeros(LENGTH)}
    with pytest.raises(AdafedError, match=r"Plan\.summed gave .* it must be a finite vector of 6 numbers"):
        side.conclude(side.first_state(torch.zeros(LENGTH), LENGTH), 1, [reply(0, vectors=vectors)], {})


def test_a_plan_that_draws_more_than_it_said_is_told() -> None:
    class Greedy(Plan):
        def draw(self, round: int, known: Tensors) -> Draw | None:
            return Draw(np.arange(4), all=True)

    side = replace(half(), client_rules=(Ruled(Picky(), Greedy()),))
    sampler = Sampler(CohortSection(count=2), ("a", "b", "c", "d"), np.full(4, 5), 0)
    with pytest.raises(AdafedError, match=r"draws 4 clients in round 1; it must be at most 2"):
        side.cohort(sampler, side.first_state(torch.zeros(LENGTH), LENGTH), 1)


def test_a_liar_that_the_veto_bounds_does_not_steer_feddyn_either() -> None:
    near = torch.zeros(LENGTH)
    near[0] = 1.0
    noise = [0.01 * torch.randn(LENGTH, generator=torch.Generator().manual_seed(k)) for k in range(5)]
    replies = [reply(k, update=near + noise[k]) for k in range(5)] + [reply(5, update=-50.0 * near)]
    config = config_from({"rule": "fedavg", "client": {"rules": ["feddyn"]}, "guards": {"use": ["veto"]}})
    side = ServerHalf.of(config, [str(k) for k in range(6)], length=LENGTH)
    found = side.conclude(side.first_state(torch.zeros(LENGTH), LENGTH), 1, replies, {})
    assert found.outcome is not None
    assert "5" in found.outcome.diagnostics.bounded
    assert found.state.parameters[0] < 0.0  # downhill for the honest, with FedDyn's term


def test_statistics_are_weighed_by_sample_counts_as_guards_let_them_count() -> None:
    side = replace(half("adafed"), guards=resolved(["sizes"]))  # a rule that needs no sizes itself
    replies = [reply(k, [0.0], samples=10) for k in range(4)] + [reply(4, [100.0], samples=10**6)]
    found = side.conclude(side.first_state(torch.zeros(LENGTH + 1), LENGTH), 1, replies, {})
    assert float(found.state.parameters[LENGTH]) <= 60.0  # six medians of a hundred samples


@pytest.mark.parametrize("skipped", [False, True])
def test_a_rule_that_a_plan_brings_begins_anew_though_its_first_round_is_skipped(skipped: bool) -> None:
    @dataclass(frozen=True)
    class Late(ClientRule):
        name = "late"

        def plan(self, setting: Setting) -> Plan:
            return Later()

    class Later(Plan):
        def server_rule(self, round: int, usual: Rule) -> Rule:
            return rule("fedavg") if round == 1 else usual

    side = half("afl", Late())
    state = side.conclude(side.first_state(torch.zeros(LENGTH), LENGTH), 1, [reply(0), reply(1)], {}).state
    state = side.conclude(state, 2, [] if skipped else [reply(2)], {}).state
    found = side.conclude(state, 3, [reply(0), reply(1)], {})
    assert found.record.skipped is None
    assert found.state.rule_state is not None
    assert found.state.rule_state.numbers.keys() == rule("afl").initial_state().keys()


def test_a_round_that_nobody_is_left_of_says_why_of_everyone() -> None:
    side = half()
    state = side.first_state(torch.ones(LENGTH + 1), LENGTH)
    broken = {"update": torch.full((LENGTH,), float("nan"))}
    found = side.conclude(state, 1, [reply(0, [float("nan")]), reply(1, [1.0], **broken)], {2: "did not answer"})
    assert [one.dropped for one in found.record.participants] == [
        BAD_STATISTICS, "update has a non-finite value", "did not answer",
    ]  # fmt: skip
    assert found.record.skipped is not None


def test_what_was_sent_out_and_is_not_finite_is_no_fault_of_a_client() -> None:
    """A mask of -inf among the buffers of a module."""
    side, masked = half(), -float("inf")
    state = side.first_state(torch.cat([torch.zeros(LENGTH), torch.tensor([masked, 1.0])]), LENGTH)
    found = side.conclude(state, 1, [reply(0, [masked, 2.0]), reply(1, [masked, 3.0]), reply(2, [0.0, masked])], {})
    assert [one.dropped for one in found.record.participants] == [None, None, BAD_STATISTICS]
    assert found.state.parameters[LENGTH].item() == masked
    assert found.state.parameters[LENGTH + 1].item() == pytest.approx((10 * 2 + 11 * 3) / 21)
