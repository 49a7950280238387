"""What a guard may do to the clients that are left: drop them, bound their facts, multiply their updates."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch

import adafed
from adafed import AdafedError, Facts
from adafed.algebra import gram, products
from adafed.errors import NoClientLeft
from adafed.server_rules.guards import GUARDS, Guard, Verdict, guards_from, resolved

Need = frozenset[str]
LOSSES, SIZES, ACCURACIES = [1.0, 2.0, 9.0, 3.0, 0.5], [10.0, 20.0, 30.0, 40.0, 50.0], [0.1, 0.9, 0.5, 0.3, 0.7]
RULES = [adafed.rule(name) for name in adafed.rules()]
FEDAVG, ADAFED, AFL = adafed.rule("fedavg"), adafed.rule("adafed"), adafed.rule("afl")


@dataclass(frozen=True)
class ClipLosses(Guard):
    most: float = 4.0

    @property
    def needs(self) -> Need:
        return frozenset({"losses"})

    def judge(self, facts: Facts, needs: Need) -> Verdict:
        losses = facts.need_losses()
        bounded = {int(k): f"loss {losses[k]:g} counts as {self.most:g}" for k in np.flatnonzero(losses > self.most)}
        return Verdict(replace(facts, losses=np.minimum(losses, self.most)), bounded=bounded)


@dataclass(frozen=True)
class MedianLength(Guard):
    """Longer updates count as long as the median; the lengths come from wherever it is told."""

    source: str = "norms"

    @property
    def needs(self) -> Need:
        return frozenset({self.source})

    def judge(self, facts: Facts, needs: Need) -> Verdict:
        norms = facts.need_norms() if self.source == "norms" else np.sqrt(np.diag(facts.need_gram()))
        factors = np.minimum(1.0, np.median(norms) / norms)
        bounded = {int(k): f"length {norms[k]:.3g} is above the median" for k in np.flatnonzero(factors < 1)}
        return Verdict(facts, factors, bounded=bounded)


@dataclass(frozen=True)
class Without(Guard):
    client: str = "2"

    def judge(self, facts: Facts, needs: Need) -> Verdict:
        dropped = {k: "not wanted" for k, client in enumerate(facts.clients) if client == self.client}
        return Verdict(facts, dropped=dropped)


@dataclass(frozen=True)
class Ones(Guard):
    asks: str = ""

    @property
    def needs(self) -> Need:
        return frozenset({self.asks} if self.asks else ())

    def judge(self, facts: Facts, needs: Need) -> Verdict:
        return Verdict(facts, np.ones(facts.count))


class Sees(Guard):
    """Keeps what it was shown."""

    def __init__(self, *needs: str) -> None:
        self.__dict__["asks"], self.__dict__["seen"] = frozenset(needs), []

    @property
    def needs(self) -> Need:
        return frozenset(self.__dict__["asks"])

    def judge(self, facts: Facts, needs: Need) -> Verdict:
        self.__dict__["seen"].append((facts, needs))
        return Verdict(facts)

    @property
    def facts(self) -> Facts:
        ((facts, _),) = self.__dict__["seen"]
        assert isinstance(facts, Facts)
        return facts


def updates(dtype: torch.dtype = torch.float64) -> torch.Tensor:
    rows = torch.randn(5, 30, generator=torch.Generator().manual_seed(1), dtype=torch.float64) + 0.5
    rows[3] *= 20.0
    return rows.to(dtype)


def aggregated(rule: adafed.Rule, rows: torch.Tensor | None = None, **over: Any) -> adafed.Aggregate:
    told: dict[str, Any] = {"losses": LOSSES, "sizes": SIZES, "accuracies": ACCURACIES, "local_lr": 0.1}
    return adafed.aggregate(rule, updates() if rows is None else rows, **told | over)


def same_bits(one: adafed.Aggregate, other: adafed.Aggregate) -> None:
    assert torch.equal(one.direction, other.direction)
    assert np.array_equal(one.coefficients, other.coefficients)
    assert one.state.numbers == other.state.numbers
    assert (one.state.vectors is None) == (other.state.vectors is None)
    assert one.state.vectors is None or torch.equal(one.state.vectors, other.state.vectors)  # type: ignore[arg-type]


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_bounded_losses_are_the_losses_the_rule_sees(rule: adafed.Rule) -> None:
    guarded = aggregated(rule, guards=[ClipLosses()])
    same_bits(guarded, aggregated(rule, losses=[1.0, 2.0, 4.0, 3.0, 0.5]))
    assert guarded.diagnostics.bounded == {"2": "loss 9 counts as 4"}
    assert guarded.diagnostics.multipliers is None
    assert guarded.diagnostics.dropped == {}


@pytest.mark.parametrize("source", ["norms", "gram"])
@pytest.mark.parametrize("rule", RULES, ids=str)
def test_a_multiplier_is_as_if_the_update_had_been_sent_so(rule: adafed.Rule, source: str) -> None:
    rows = updates()
    lengths = rows.norm(dim=1)
    factors = (lengths.median() / lengths).clamp(max=1.0)
    expected = aggregated(rule, rows * factors[:, None])
    guarded = aggregated(rule, rows, guards=[MedianLength(source)])
    told = guarded.diagnostics
    assert torch.equal(rows, updates())
    assert torch.allclose(guarded.direction, expected.direction, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(guarded.coefficients, expected.coefficients * factors.numpy(), rtol=1e-7, atol=1e-10)
    assert told.multipliers is not None
    np.testing.assert_allclose(told.multipliers, factors.numpy(), rtol=1e-12)
    assert "3" in told.bounded
    # Coefficients, rates and the mean are of the updates as they were sent.
    np.testing.assert_allclose(torch.from_numpy(guarded.coefficients) @ rows, guarded.direction, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(told.rates, (rows @ guarded.direction).numpy(), rtol=1e-8, atol=1e-9)
    assert told.mean_norm == pytest.approx(float(rows.mean(dim=0).norm()))
    if guarded.state.vectors is not None:  # and what is remembered is what the rule saw
        assert expected.state.vectors is not None
        assert torch.allclose(guarded.state.vectors, expected.state.vectors, rtol=1e-12)


def test_multipliers_over_rounds_of_a_rule_that_looks_back() -> None:
    rule = adafed.rule("fedfv", tau=3)
    state, other = None, None
    for round_ in (1, 2, 3):
        rows = updates() + round_
        lengths = rows.norm(dim=1)
        factors = (lengths.median() / lengths).clamp(max=1.0)
        clients = [f"{k + round_}" for k in range(5)]
        guarded = aggregated(rule, rows, clients=clients, round=round_, state=state, guards=[MedianLength()])
        scaled = aggregated(rule, rows * factors[:, None], clients=clients, round=round_, state=other)
        assert torch.allclose(guarded.direction, scaled.direction, rtol=1e-8, atol=1e-10)
        assert guarded.state.memory == scaled.state.memory
        state, other = guarded.state, scaled.state


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_a_dropped_client_is_as_if_it_were_not_there(rule: adafed.Rule) -> None:
    left = [0, 1, 3, 4]
    guarded = aggregated(rule, guards=[Without("2")])
    fewer = aggregated(rule, updates()[left], clients=left, losses=[LOSSES[k] for k in left],
                       sizes=[SIZES[k] for k in left], accuracies=[ACCURACIES[k] for k in left])  # fmt: skip
    assert guarded.diagnostics.dropped == {"2": "not wanted"}
    assert guarded.coefficients[2] == 0.0
    assert math.isnan(guarded.diagnostics.rates[2])
    np.testing.assert_allclose(guarded.coefficients[left], fewer.coefficients, rtol=1e-7, atol=1e-10)
    assert torch.allclose(guarded.direction, fewer.direction, rtol=1e-8, atol=1e-11)


def test_who_is_dropped_after_being_bounded_is_only_dropped() -> None:
    told = aggregated(ADAFED, guards=[ClipLosses(), MedianLength(), Without("3")]).diagnostics
    assert told.dropped == {"3": "not wanted"}
    assert "3" not in told.bounded
    assert told.multipliers is not None
    assert math.isnan(told.multipliers[3])


def test_two_reasons_are_both_told() -> None:
    told = aggregated(ADAFED, guards=[ClipLosses(4.0), ClipLosses(2.5)]).diagnostics
    assert told.bounded == {"2": "loss 9 counts as 4; loss 4 counts as 2.5", "3": "loss 3 counts as 2.5"}


def test_guards_act_in_their_order() -> None:
    """A later one sees what an earlier one has left: without client 3 another length is the median."""
    first, last = (Sees("norms", "gram", "losses") for _ in range(2))
    aggregated(FEDAVG, guards=[first, ClipLosses(), MedianLength(), Without("2"), last])
    rows = updates()
    lengths = rows.norm(dim=1).numpy()
    np.testing.assert_allclose(first.facts.need_norms(), lengths)
    assert first.facts.need_losses().tolist() == LOSSES
    assert last.facts.clients == ("0", "1", "3", "4")
    assert last.facts.need_losses().tolist() == [1.0, 2.0, 3.0, 0.5]
    bounded = np.minimum(lengths, np.median(lengths))[[0, 1, 3, 4]]
    np.testing.assert_allclose(last.facts.need_norms(), bounded)
    np.testing.assert_allclose(np.sqrt(np.diag(last.facts.need_gram())), bounded)
    one = aggregated(FEDAVG, guards=[Without("3"), MedianLength()]).diagnostics.multipliers
    other = aggregated(FEDAVG, guards=[MedianLength(), Without("3")]).diagnostics.multipliers
    assert one is not None
    assert other is not None
    assert not np.array_equal(one, other, equal_nan=True)


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_the_same_call_gives_the_same_bits(rule: adafed.Rule) -> None:
    chain = [ClipLosses(), MedianLength(), Without("0")]
    one, other = (aggregated(rule, updates(torch.float32), guards=chain) for _ in range(2))
    same_bits(one, other)
    assert repr(one.diagnostics) == repr(other.diagnostics)


@pytest.mark.parametrize("asks", ["", "norms", "gram", "losses", "sizes"])
@pytest.mark.parametrize("rule", RULES, ids=str)
def test_ones_are_no_guard_to_the_bit(rule: adafed.Rule, asks: str) -> None:
    guarded, plain = aggregated(rule, guards=[Ones(asks)]), aggregated(rule)
    same_bits(guarded, plain)
    assert guarded.diagnostics.multipliers is None
    assert guarded.diagnostics.norm == plain.diagnostics.norm
    assert guarded.diagnostics.condition == plain.diagnostics.condition
    if asks != "gram":
        assert repr(guarded.diagnostics) == repr(plain.diagnostics)
    np.testing.assert_allclose(guarded.diagnostics.rates, plain.diagnostics.rates, rtol=1e-9)


@pytest.mark.parametrize(
    "guard", [*(GUARDS.make(name) for name in GUARDS.names()), ClipLosses(), MedianLength(), Without(), Ones()], ids=str
)
def test_the_order_of_the_clients_is_only_an_order(guard: Guard) -> None:
    order = [4, 2, 0, 3, 1]
    rows = updates().numpy()
    facts = Facts(
        clients=tuple("01234"), losses=np.array(LOSSES), sizes=np.array([10.0, -1.0, 5.0, 5.0, 5.0]),
        accuracies=np.array([0.5, 0.5, math.nan, 0.5, 0.5]), norms=np.linalg.norm(rows, axis=1), gram=rows @ rows.T,
    )  # fmt: skip
    assert facts.losses is not None
    assert facts.norms is not None
    assert facts.gram is not None
    facts.norms[4] = 1e-12
    moved = replace(
        facts, clients=tuple(facts.clients[k] for k in order), losses=facts.losses[order],
        sizes=facts.need_sizes()[order], accuracies=facts.need_accuracies()[order], norms=facts.norms[order],
        gram=facts.gram[np.ix_(order, order)],
    )  # fmt: skip
    needs = frozenset({"gram", "sizes", "accuracies"})
    one, other = guard.judge(facts, needs), guard.judge(moved, needs)
    assert {order[k]: why for k, why in other.dropped.items()} == one.dropped
    assert {order[k]: why for k, why in other.bounded.items()} == one.bounded
    assert np.array_equal(one.facts.need_losses()[order], other.facts.need_losses())
    assert (one.multipliers is None) == (other.multipliers is None)
    assert one.multipliers is None or np.array_equal(one.multipliers[order], other.multipliers)  # type: ignore[arg-type]


def test_a_guard_sees_the_clients_that_screening_left_and_no_others() -> None:
    rule = adafed.rule("fedfv", tau=3)
    first = aggregated(rule)
    rows = updates()
    rows[1, 0] = math.nan
    seen = Sees("gram")
    losses = [*LOSSES[:4], math.inf]
    outcome = aggregated(rule, rows, losses=losses, clients="vwxyz", round=2, state=first.state, guards=[seen])
    assert outcome.diagnostics.dropped.keys() == {"w", "z"}
    assert seen.facts.clients == ("v", "x", "y")
    assert seen.facts.memory == ()
    assert seen.facts.need_gram().shape == (3, 3)
    ((_, needs),) = seen.__dict__["seen"]
    assert needs == rule.needs


def test_what_a_guard_needs_is_screened_for_it() -> None:
    sizes = [10.0, 20.0, math.nan, 40.0, 50.0]
    plain = adafed.rule("fedavg", weighted=False)
    assert aggregated(plain, sizes=sizes).diagnostics.dropped == {}
    assert aggregated(plain, sizes=sizes, guards=[Ones("sizes")]).diagnostics.dropped == {"2": "sample count is nan"}


def test_a_zero_update_stays_where_only_a_guard_asks_for_the_matrix() -> None:
    rows = updates()
    rows[1] = 0.0
    seen = Sees("gram", "norms")
    outcome = aggregated(AFL, rows, guards=[seen])
    assert outcome.diagnostics.dropped == {}
    same_bits(outcome, aggregated(AFL, rows))
    np.testing.assert_allclose(seen.facts.need_gram(), (rows @ rows.T).numpy())
    assert seen.facts.need_norms()[1] == 0.0


def test_a_multiplier_that_leaves_next_to_nothing_drops_the_client_where_the_rule_solves() -> None:
    @dataclass(frozen=True)
    class Tiny(Guard):
        def judge(self, facts: Facts, needs: Need) -> Verdict:
            return Verdict(facts, np.where(np.arange(facts.count) == 1, 1e-200, 1.0))

    outcome = aggregated(ADAFED, guards=[Tiny()])
    assert outcome.diagnostics.dropped.keys() == {"1"}
    assert outcome.direction.isfinite().all()


@pytest.mark.parametrize(("asks", "passes"), [("", (0, 1, 0)), ("norms", (0, 1, 1)), ("gram", (1, 0, 0))])
def test_no_row_is_read_twice_for_a_guard(asks: str, passes: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    from adafed.server import remaining

    calls = {"gram": 0, "screen": 0, "norms": 0}

    def counted(name: str, function: Any) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            calls[name] += 1
            return function(*arguments, **options)

        return call

    monkeypatch.setattr(remaining, "gram_screened", counted("gram", gram.gram_screened))
    monkeypatch.setattr(remaining, "screen", counted("screen", gram.screen))
    monkeypatch.setattr(products, "norms", counted("norms", products.norms))
    aggregated(FEDAVG, guards=[Ones(asks), Ones(asks), MedianLength(asks)] if asks else [Ones(), Without("1")])
    assert tuple(calls.values()) == passes


def test_nobody_left() -> None:
    everybody = [Without(str(k)) for k in range(5)]
    with pytest.raises(
        NoClientLeft, match="no client is left to aggregate: client 0: not wanted; client 1: not wanted"
    ):
        aggregated(ADAFED, guards=everybody)
    with pytest.raises(NoClientLeft):  # one that did not move and one that is not wanted are no stationary point
        aggregated(ADAFED, torch.cat([torch.zeros(1, 30).double(), updates()[1:]]), guards=everybody[1:])


def test_by_name_and_from_a_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    class Named(ClipLosses):
        pass

    name = "known to this test alone"
    monkeypatch.setattr(GUARDS, "_entries", dict(GUARDS._entries))
    GUARDS.register(name)(Named)
    same_bits(aggregated(ADAFED, guards=[name]), aggregated(ADAFED, guards=[ClipLosses()]))
    assert guards_from([(name, {"most": 2}), ("facts", {})]) == (Named(2.0), GUARDS.make("facts"))
    with pytest.raises(AdafedError, match=rf"^{name}\.least is unknown; guards\.use = '{name}' has most$"):
        guards_from([(name, {"least": 2})])


def test_a_chain_is_looked_over_once_and_says_what_its_guards_need() -> None:
    chain = guards_from([("default", {}), ("krum", {})])
    assert resolved(chain) is chain
    assert chain.needs == frozenset().union(*(guard.needs for guard in chain))
    assert resolved([*chain, ClipLosses()]).needs == chain.needs | {"losses"}
    assert resolved([]) == ()
    same_bits(aggregated(ADAFED, guards=chain), aggregated(ADAFED, guards=["default", "krum"]))


class Answers(Guard):
    """Whatever it is given, made from the facts."""

    def __init__(self, verdict: Any) -> None:
        self.__dict__["verdict"] = verdict

    def judge(self, facts: Facts, needs: Need) -> Verdict:
        made: Verdict = self.__dict__["verdict"](facts)
        return made


@pytest.mark.parametrize(
    ("verdict", "sentence"),
    [
        (lambda _: None, rf"^guard {__name__}:Answers answered with NoneType; it must be a Verdict$"),
        (lambda f: Verdict(f, np.ones(3)), r"multipliers .*; they must be one number above 0 for each of 5 clients"),
        (lambda f: Verdict(f, np.zeros(5)), r"multipliers .* above 0"),
        (lambda f: Verdict(f, np.full(5, math.nan)), r"multipliers .* above 0"),
        (lambda f: Verdict(f, dropped={5: "x"}), "client 5; it must be a position from 0 to 4"),
        (lambda f: Verdict(f, bounded={"a": "x"}), "client 'a'; it must be a position"),
        (lambda f: Verdict(replace(f, losses=f.losses[:2])), "losses .*; they must be one finite number for each of 5"),
        (lambda f: Verdict(replace(f, losses=f.losses * math.nan)), "losses .*; they must be one finite number"),
        (lambda f: Verdict(replace(f, sizes=None)), "sizes None; they must be one finite number"),
    ],
)
def test_a_verdict_that_is_none_is_told(verdict: Any, sentence: str) -> None:
    with pytest.raises(AdafedError, match=sentence):
        aggregated(ADAFED, guards=[Answers(verdict)])


def test_the_facts_cannot_be_written_to() -> None:
    def writes(facts: Facts) -> Verdict:
        facts.need_losses()[0] = 0.0
        return Verdict(facts)

    with pytest.raises(ValueError, match="read-only"):
        aggregated(ADAFED, guards=[Answers(writes)])


@pytest.mark.parametrize(
    ("guards", "sentence"),
    [
        ("facts", r"guards is 'facts'; give 'default', or a list of guards in the order they act in"),
        (
            ["unheard of"],
            r"^guards\.use = 'unheard of' is unknown; there are default, .*facts, .*your own as 'module:attribute'$",
        ),
        ([3], r"guards has 3; give guards, or their names"),
        (
            [Sees("updates")],
            rf"^guard {__name__}:Sees needs 'updates'; it may need accuracies, gram, losses, norms, sizes$",
        ),
    ],
)
def test_guards_that_are_none(guards: Any, sentence: str) -> None:
    with pytest.raises(AdafedError, match=sentence):
        aggregated(ADAFED, guards=guards)


def test_a_fact_that_only_the_guard_needs_is_asked_for() -> None:
    told = rf"^guard {__name__}:ClipLosses needs losses; pass losses=, one number for each client"
    with pytest.raises(AdafedError, match=told):
        adafed.aggregate(FEDAVG, updates(), sizes=SIZES, guards=[ClipLosses()])


@pytest.mark.parametrize("name", ["fedmgda+", "adafed"])
def test_the_rule_is_shown_what_will_be_summed_though_a_client_is_dropped_after_updates_were_mixed(name: str) -> None:
    random = torch.Generator().manual_seed(3)
    honest = torch.tensor([1.0, 0.0, 0.0, 0.0, 0.0, 0.0]) + 0.1 * torch.randn(4, 6, generator=random)
    updates = torch.stack([*honest, honest[0].clone(), -2.0 * honest.mean(dim=0)])  # a copy, and one that opposes all
    out = adafed.aggregate(adafed.rule(name), updates, losses=[1.0] * 6, guards="default")
    assert out.diagnostics.dropped
    assert out.diagnostics.bounded
    told: dict[str, Any] = {}

    @dataclass(frozen=True)
    class Looking(type(adafed.rule(name))):  # type: ignore[misc]
        def answer(self, facts: Facts, state: dict[str, Any]) -> Any:
            answer = super().answer(facts, state)
            told["length"] = float(np.sqrt(answer.coefficients @ facts.need_gram() @ answer.coefficients))
            return answer

    seen = adafed.aggregate(Looking(), updates, losses=[1.0] * 6, guards="default")
    assert told["length"] == pytest.approx(float(seen.direction.norm()), rel=1e-5)
