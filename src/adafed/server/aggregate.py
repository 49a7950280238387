"""The public call: updates and facts in, direction and diagnostics out, whatever the rule.

Everything a client can send wrong is screened before it reaches a rule or the model, and guards may bound what is left;
`remaining.py` keeps account of both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from numbers import Integral, Real
from typing import Any, Literal

import numpy as np
import torch

from adafed.algebra import products
from adafed.algebra.blocks import one_blas_thread
from adafed.algebra.gram import ZERO
from adafed.algebra.rows import Rows, Updates
from adafed.algebra.stored import StoredRow
from adafed.algebra.weighted_sum import finite_sum_and_norm
from adafed.errors import AdafedError, NoClientLeft
from adafed.imported import ours
from adafed.server.answering import answered
from adafed.server.everyone import Everyone, next_memory
from adafed.server.given import MADE_HERE, Values, federation_of, ids_of, numbers_of, require, single
from adafed.server.memory import NOBODY, Memory, Remember
from adafed.server.remaining import Remaining, learns
from adafed.server.returning import Truth, truth
from adafed.server.saved import alike
from adafed.server_rules.base import EVER, Answer, Facts, Numbers, Rule, Vector
from adafed.server_rules.guards import Chain, Guard, Step, resolved
from adafed.server_rules.guards.screening import Negligible, UsableFacts

ROUNDING = 1e6  # times the whole: a part of d that is as large as that shows that the parts cancel to rounding


@dataclass(frozen=True)
class RuleState:
    """What is carried from round to round.

    Attributes:
        numbers: The rule's own, which go through JSON.
        known: The updates that are remembered.
        guards: The numbers of guards that look back, by place in the chain and name.
    """

    numbers: Numbers = field(default_factory=dict)
    known: Memory = NOBODY
    guards: dict[str, Numbers] = field(default_factory=dict)

    @property
    def memory(self) -> tuple[tuple[str, int], ...]:
        """The client and the round of each remembered update."""
        return self.known.names

    @property
    def vectors(self) -> torch.Tensor | None:
        """The remembered updates that are kept whole, one below the other: a copy."""
        rows = [row if isinstance(row, torch.Tensor) else row.tensor() for row in self.known.whole]
        return torch.stack(rows) if rows else None


@dataclass(frozen=True)
class Diagnostics:
    """What happened in one aggregation. All but `condition` is of the updates g_k as they were sent, guards or not.

    Attributes:
        norm: The length of the direction.
        mean_norm: The length of the mean update.
        rates: g_k . d in the order given, NaN for dropped clients: how fast each loss falls, to first order.
        negative: How many coefficients are below 0.
        condition: That of the Gram matrix of the unit updates before guards, None for rules that ask for none.
        dropped: Who was left out, and why.
        notes: The rule's own.
        bounded: Whom a guard has bounded, and how.
        multipliers: How much of its own update guards left each client, in the order given, NaN for dropped clients;
            None where that is all of it.
        warned: Of whom a guard warns.
    """

    norm: float
    mean_norm: float
    rates: Vector
    negative: int
    condition: float | None
    dropped: dict[str, str]
    notes: dict[str, Any]
    bounded: dict[str, str] = field(default_factory=dict)
    multipliers: Vector | None = None
    warned: dict[str, str] = field(default_factory=dict)

    @property
    def hull(self) -> str | None:
        """Which hull AdaFed's point was taken from; None for other rules."""
        return self.notes.get("hull")


@dataclass(frozen=True)
class Aggregate:
    """The outcome of a round: new parameters = old - server_lr * direction. Pass `state` to the next round.

    Attributes:
        coefficients: One for each client, in the order given, of the updates as they were sent.
        direction: The sum of coefficients[k] times update k, and of the remembered updates times theirs.
        diagnostics: What happened.
        state: For the next call of `aggregate`.
        remembered: Coefficients of the clients that were remembered, by id.
    """

    coefficients: Vector
    direction: torch.Tensor
    diagnostics: Diagnostics
    state: RuleState
    remembered: dict[str, float] = field(default_factory=dict)  # the coefficients of clients that were not here


def aggregate(
    rule: Rule,
    updates: Updates,
    *,
    losses: Values | None = None,
    sizes: Values | None = None,
    accuracies: Values | None = None,
    clients: Sequence[object] | None = None,
    round: int = 1,
    local_lr: float | None = None,
    federation: int | None = None,
    state: RuleState | None = None,
    guards: Sequence[Guard | str] | str = (),
    memory: int | Literal["all", "auto"] | Remember = 0,
) -> Aggregate:
    """Aggregate the updates g_k = theta - theta_k of K clients by `rule`.

    Bad clients are dropped and named in `diagnostics.dropped`: a non-finite update or loss, an accuracy or sample count
    the rule needs and cannot use, and, for rules that solve with the Gram matrix, a zero update, which would veto every
    step.

    Args:
        rule: What `adafed.rule(name, ...)` returns, or a rule of your own.
        updates: A K x d tensor, a list of K flat tensors, or memory-mapped arrays.
        losses: Of each client, of the model it received; like all facts, only where the rule needs it.
        sizes: Sample counts of the clients.
        accuracies: Training accuracies of the clients, from 0 to 1.
        clients: Their ids, for rules that remember and for the diagnostics; without them, their places.
        round: Counted from 1.
        local_lr: The clients' learning rate, which q-FFL needs.
        federation: How many clients there are in all; without it, those heard so far.
        state: `state` of the round before; rules, guards and the memory look back by it.
        guards: They act on the clients that are left, in their order, before the rule; "default" stands for the default
            ones.
        memory: So many rounds, or "all": the rule is shown the last update of every client heard within them beside
            those given here. "auto": under AdaFed all, as long as that stays true, and nobody under other rules.

    Returns:
        The direction, the coefficients, diagnostics and the next state.

    Raises:
        AdafedError: For a mistake in the call, in one sentence.
        NoClientLeft: Where every client of the round was dropped, which is nobody's mistake: keep the model, go on.

    Examples:
        Two clients pull in opposite directions; the one with the larger loss gets more of the step, and neither loses.

        >>> import torch, adafed
        >>> updates = torch.tensor([[1.0, 0.5], [-1.0, 1.0]])
        >>> out = adafed.aggregate(adafed.rule("adafed", gamma=1.0), updates, losses=[1.0, 2.0])
        >>> out.diagnostics.rates.round(3).tolist()
        [0.375, 0.75]
        >>> bool((out.diagnostics.rates > 0).all())
        True
    """
    if not isinstance(rule, Rule):
        raise AdafedError(f"rule is {rule!r}; give a rule, as adafed.rule('adafed') makes one")
    chain = resolved(guards)
    state = RuleState(rule.initial_state()) if state is None else state
    known = state.known if isinstance(state, RuleState) and isinstance(state.known, Memory) else NOBODY
    remember = Remember.asked_for(memory, rule, known)
    _check_state(rule, round, state, remember)
    rows = Rows(updates)
    count = rows.count
    _require_length(known, rows.length)
    joining = _joining(rule, remember)
    if not joining:
        rows = rows.with_stored(state.known.whole)
    facts = Facts(
        clients=ids_of(clients, count),
        round=int(round),
        losses=numbers_of("losses", losses, count),
        sizes=numbers_of("sizes", sizes, count),
        accuracies=numbers_of("accuracies", accuracies, count),
        local_lr=single("local_lr", local_lr, Real),
        federation=federation_of(federation, count),
        memory=() if joining else state.memory,
    )
    require(f"rule {rule.name}", rule.needs, facts)
    if not chain.needs <= MADE_HERE:
        for guard in chain:
            require(f"guard {guard.name}", guard.needs, facts)
    with one_blas_thread():  # K x K is too small for more, and a busy machine makes them wait for each other
        return _aggregated(rule, rows, facts, state, chain, remember)


def _joining(rule: Rule, remember: Remember) -> bool:
    """Whether remembered clients stand beside the cohort, with their products kept from round to round. A rule that
    looks back by itself on a few rounds has its rows read again instead."""
    return remember.horizon > 0 or rule.previous or (rule.remembers > 0 and "gram" not in rule.needs)


def _aggregated(rule: Rule, rows: Rows, facts: Facts, state: RuleState, guards: Chain, remember: Remember) -> Aggregate:
    needs = rule.needs | guards.needs
    left = Remaining.all_of(facts).screened(UsableFacts(), needs)
    left = left.read(rows, needs, rule).screened(Negligible(), rule.needs)
    still = not left.kept and ZERO in left.dropped.values()
    left = left.guarded(guards, rule.needs, state.guards)
    if left.multipliers is not None or left.mixing is not None:
        left = left.screened(Negligible(), rule.needs)
    everyone, judged = None, Truth(state.known.returned, True)
    if still:  # nobody moved: there is no direction, and nothing to learn for the rule's state
        answer = Answer(np.zeros(len(left.remembered)), state.numbers, {"stationary": "every update is zero"})
    elif left.kept and _joining(rule, remember):
        judged = truth(left, rows, state.known, remember)
        everyone, answer = _with_everyone(rule, rows, state, left, remember, hidden=not judged.enough)
    elif left.kept:
        answer = answered(rule, left.facts_for(rule), state.numbers)
    else:
        raise NoClientLeft.of({facts.clients[k]: reason for k, reason in left.dropped.items()})
    return _outcome(rule, rows, facts, state, left, answer, guards, everyone, remember, judged)


def _with_everyone(
    rule: Rule, rows: Rows, state: RuleState, left: Remaining, remember: Remember, *, hidden: bool
) -> tuple[Everyone, Answer]:
    """The answer for the cohort and those that are remembered; the products again in float64 where too much cancels."""
    everyone = Everyone.of(left, rows, state.known, rule, remember, hidden=hidden)
    if not len(everyone.older):  # nobody else is known: all is as without a memory, to the bit
        return everyone, answered(rule, left.facts_for(rule), state.numbers)
    answer = answered(rule, everyone.facts, state.numbers)
    if not everyone.trusted(left.of_sent(answer.coefficients)):
        everyone = Everyone.of(left, rows, state.known, rule, remember, hidden=hidden, precise=True)
        answer = answered(rule, everyone.facts, state.numbers)
    return everyone, answer


def _outcome(
    rule: Rule,
    rows: Rows,
    facts: Facts,
    state: RuleState,
    left: Remaining,
    answer: Answer,
    guards: Chain,
    everyone: Everyone | None,
    remember: Remember,
    judged: Truth,
) -> Aggregate:
    """The coefficients are made those of the updates as they were sent, so a guard takes no pass of its own."""
    count, kept, weights = facts.count, left.kept, left.of_sent(answer.coefficients)
    if everyone is None:
        chosen, matrix = rows.select(kept + left.remembered), left.gram
    else:
        weights, whole = everyone.carried(weights)
        chosen, matrix = rows.select(kept).with_stored(everyone.older.whole), everyone.matrix
        if everyone.sketches is not None:  # a matrix of sketches says nothing exact
            matrix = None if len(everyone.older) else left.gram
    terms = weights if len(weights) == chosen.count else weights[whole]
    direction, norm = finite_sum_and_norm(chosen, terms, matrix=matrix if "gram" in rule.needs else None)
    rates = np.full(count, np.nan)
    if matrix is not None:
        rates[kept] = (matrix @ weights)[: len(kept)]
        ones = np.zeros(len(matrix))
        ones[: len(kept)] = 1.0 / max(len(kept), 1)
        mean_norm = float(np.sqrt(max(float(ones @ matrix @ ones), 0.0)))
    else:
        fresh = chosen if everyone is None else rows.select(kept)
        rates[kept], mean_norm = products.rates(fresh, direction, left.largest)
    coefficients = np.zeros(count)
    coefficients[kept] = weights[: len(kept)]
    multipliers, own = None, left.multipliers if left.mixing is None else np.diag(left.mixing)
    if own is not None:
        multipliers = np.full(count, np.nan)
        multipliers[kept] = own
    if kept and any(map(learns, guards)):
        felt = rates[kept]
        step = Step(left.facts.clients, _shares(weights[: len(kept)], felt, norm), felt, norm, mean_norm)
        left = left.looking_back(guards, step)
    diagnostics = Diagnostics(
        norm=norm,
        mean_norm=mean_norm,
        rates=rates,
        negative=int((coefficients < 0).sum()),
        condition=left.condition,
        dropped={facts.clients[k]: reason for k, reason in sorted(left.dropped.items())},
        notes=answer.notes | _told(everyone, weights, judged),
        bounded={facts.clients[k]: reason for k, reason in sorted(left.bounded.items())},
        multipliers=multipliers,
        warned={facts.clients[k]: reason for k, reason in sorted(left.warned.items())},
    )
    horizon = max(rule.remembers, remember.horizon)
    known = next_memory(state.known, everyone, left, rows, answer, remember, horizon) if horizon else NOBODY
    if judged.came_back.clients and horizon:
        known = replace(known, returned=judged.came_back)
    older = {} if everyone is None else dict(zip(everyone.older.clients, weights[len(kept) :].tolist(), strict=True))
    return Aggregate(coefficients, direction, diagnostics, RuleState(answer.state, known, left.states), older)


def _told(everyone: Everyone | None, weights: Vector, judged: Truth) -> dict[str, Any]:
    """Of the memory: who is shown, and which share of what is remembered is still true, where that is asked for."""
    told = everyone.told(weights) if everyone is not None and len(everyone.older) else {}
    if judged.share is not None:
        told = {"memory": {"clients": 0} | told.get("memory", {}) | {"true": round(judged.share, 4)}}
        if not judged.enough:
            told["hidden"] = "too little of the remembered updates is still true"
    return told


def _shares(weights: Vector, rates: Vector, norm: float) -> Vector:
    """How much of the direction each client holds: y_k g_k . d / ||d||^2."""
    with np.errstate(all="ignore"):  # an inner product may be infinite, and then nobody's share is known
        parts = weights * rates / norm**2
        known = bool((np.abs(parts) < ROUNDING).all())
    return parts if known else np.zeros(len(rates))


def _require_length(known: Memory, length: int) -> None:
    for row in known.whole:
        if len(row) != length:
            raise AdafedError(f"a remembered update has length {len(row)} and the updates have {length}; pass no state")


def _check_state(rule: Rule, round: int, state: RuleState, remember: Remember) -> None:
    if not isinstance(round, Integral) or isinstance(round, bool) or not 1 <= round <= EVER:
        raise AdafedError(f"round is {round!r}; rounds count from 1, in whole numbers up to {EVER}")
    if not isinstance(state, RuleState):
        raise AdafedError(f"state is a {type(state).__name__}; pass the state of the last round, or none")
    looks_back, first = rule.remembers or remember.horizon, rule.initial_state()
    whole = (
        isinstance(state.numbers, dict)
        and (alike(state.numbers, first) if ours(rule) else state.numbers.keys() == first.keys())
        and isinstance(state.known, Memory)
        and all(isinstance(row, torch.Tensor | StoredRow) for row in (*state.known.whole, *state.known.sketches))
        and isinstance(state.guards, dict)
        and all(isinstance(one, dict) for one in state.guards.values())
    )
    if not whole:
        raise AdafedError(f"state was not made by rule {rule.name}; pass the state of its last round, or none")
    if len(state.known) and not looks_back:
        raise AdafedError(
            f"state remembers {len(state.known)} updates, and neither rule {rule.name} nor memory= looks back; call as "
            "in the round before, or pass no state"
        )
    newest = max(state.known.rounds, default=0)
    if newest >= round:
        raise AdafedError(
            f"round is {round} and state remembers updates of round {newest}; count on, as in round={newest + 1}"
        )
    sketch = remember.store.sketch
    if sketch and (rule.remembers or rule.previous):
        raise AdafedError(f"memory.sketch is {sketch} and rule {rule.name} needs earlier updates whole; set it to 0")
    made = {len(row) for row in state.known.sketches} or ({0} if len(state.known) else {sketch})
    if made != {sketch}:
        raise AdafedError(f"memory.sketch is {sketch} and the state was made with {made.pop()}; keep it as it was")
