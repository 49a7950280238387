"""The public call: updates and facts in, direction and diagnostics out, whatever the rule.

Everything a client can send wrong is screened here, before it reaches a rule or the model. A dropped client's row is
left out of every product rather than multiplied by zero, since 0 * NaN is NaN.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import torch

from adafed.algebra import products
from adafed.algebra.blocks import one_blas_thread
from adafed.algebra.gram import NOT_FINITE, ZERO, gram_screened, screen
from adafed.algebra.rows import Rows, Updates
from adafed.algebra.weighted_sum import weighted_sum_and_norm
from adafed.errors import AdafedError, NoClientLeft
from adafed.server_rules.base import Answer, Facts, Matrix, Numbers, Rule, Vector

Values = Sequence[float | None] | np.ndarray[Any, Any] | torch.Tensor
IDLE = 1e-9  # an update this much shorter than the cohort's median is rounding: it points nowhere


@dataclass(frozen=True)
class RuleState:
    """What a rule carries from round to round: JSON-able numbers and, for rules that look back, remembered updates.

    `memory[i]` names the client and the round of `vectors[i]`.
    """

    numbers: Numbers = field(default_factory=dict)
    memory: tuple[tuple[str, int], ...] = ()
    vectors: torch.Tensor | None = None


@dataclass(frozen=True)
class Diagnostics:
    """What happened in one aggregation.

    `rates` are the g_k . d in the order given, NaN for dropped clients; `condition` is that of the Gram matrix of the
    unit updates, None for rules that ask for none; `dropped` says who was left out and why; `notes` is the rule's own.
    """

    norm: float
    mean_norm: float
    rates: Vector
    negative: int
    condition: float | None
    dropped: dict[str, str]
    notes: dict[str, Any]

    @property
    def hull(self) -> str | None:
        """Which hull AdaFed's point was taken from; None for other rules."""
        return self.notes.get("hull")


@dataclass(frozen=True)
class Aggregate:
    """The outcome of a round: new parameters = old - server_lr * direction. Pass `state` to the next round."""

    coefficients: Vector
    direction: torch.Tensor
    diagnostics: Diagnostics
    state: RuleState


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
) -> Aggregate:
    """Aggregate the updates g_k = theta - theta_k of K clients by `rule`.

    `updates` is a K x d tensor, a list of K flat tensors, or memory-mapped arrays. The facts are one number for each
    client and may be left out where the rule does not need them; `round` counts from 1; `federation` is the number of
    clients there are in all. Bad clients are dropped and named in `diagnostics.dropped`: a non-finite update or loss,
    an accuracy or sample count the rule needs and cannot use, and, for rules that solve with the Gram matrix, a zero
    update, which would veto every step. A mistake in the call raises `AdafedError`.
    """
    state = RuleState(rule.initial_state()) if state is None else state
    _check_state(rule, round, state)
    rows = Rows(updates, state.vectors)
    count = rows.count - len(state.memory)
    facts = Facts(
        clients=_ids(clients, count),
        round=round,
        losses=_numbers("losses", losses, count),
        sizes=_numbers("sizes", sizes, count),
        accuracies=_numbers("accuracies", accuracies, count),
        local_lr=local_lr,
        federation=federation,
        memory=state.memory,
    )
    for need in sorted(rule.needs - {"gram", "norms"}):
        if getattr(facts, need) is None:
            shape = "the clients' learning rate" if need == "local_lr" else "one number for each client"
            raise AdafedError(f"rule {rule.name} needs {need}; pass {need}=, {shape}")
    with one_blas_thread():  # K x K is too small for more, and a busy machine makes them wait for each other
        return _aggregated(rule, rows, facts, state)


def _aggregated(rule: Rule, rows: Rows, facts: Facts, state: RuleState) -> Aggregate:
    count = facts.count
    dropped = _bad_facts(rule, facts)
    good = [k for k in range(count) if k not in dropped]
    screened = _screened(rule, rows, count, good, dropped)
    kept = [k for k in range(count) if k not in dropped]
    if not kept and ZERO not in dropped.values():
        told = "; ".join(f"client {facts.clients[k]}: {reason}" for k, reason in dropped.items())
        raise NoClientLeft(f"no client is left to aggregate: {told}")
    if kept:
        answer = rule.answer(_narrowed(facts, kept, screened), state.numbers)
    else:  # nobody moved: there is no direction, and nothing to learn for the rule's state
        answer = Answer(np.zeros(len(state.memory)), state.numbers, {"stationary": "every update is zero"})
    return _outcome(rule, rows, facts, state, kept, dropped, answer, screened)


def _outcome(
    rule: Rule,
    rows: Rows,
    facts: Facts,
    state: RuleState,
    kept: list[int],
    dropped: dict[int, str],
    answer: Answer,
    screened: _Screened,
) -> Aggregate:
    count, matrix = facts.count, screened.gram
    chosen = rows.select(kept + list(range(count, rows.count))) if matrix is not None else rows.select(kept)
    direction, norm = weighted_sum_and_norm(chosen, answer.coefficients, matrix=matrix)
    rates = np.full(count, np.nan)
    if matrix is not None:
        rates[kept] = (matrix @ answer.coefficients)[: len(kept)]
        ones = np.zeros(len(matrix))
        ones[: len(kept)] = 1.0 / max(len(kept), 1)
        mean_norm = float(np.sqrt(max(float(ones @ matrix @ ones), 0.0)))
    else:
        rates[kept], mean_norm = products.rates(chosen, direction, screened.largest)
    coefficients = np.zeros(count)
    coefficients[kept] = answer.coefficients[: len(kept)]
    diagnostics = Diagnostics(
        norm=norm,
        mean_norm=mean_norm,
        rates=rates,
        negative=int((coefficients < 0).sum()),
        condition=screened.condition,
        dropped={facts.clients[k]: reason for k, reason in sorted(dropped.items())},
        notes=answer.notes,
    )
    return Aggregate(coefficients, direction, diagnostics, _remembered(rule, rows, facts, state, kept, answer))


def _remembered(rule: Rule, rows: Rows, facts: Facts, state: RuleState, kept: list[int], answer: Answer) -> RuleState:
    """The last update of every client seen within the rounds the rule looks back on; a newer one replaces an older."""
    if not rule.remembers:
        return RuleState(answer.state)
    returning = {facts.clients[k] for k in kept}
    entries = [
        (facts.count + i, entry)
        for i, entry in enumerate(state.memory)
        if entry[0] not in returning and entry[1] > facts.round - rule.remembers
    ]
    entries += [(k, (facts.clients[k], facts.round)) for k in kept]
    vectors = rows.select([row for row, _ in entries]).block(0, rows.length) if entries else None
    return RuleState(answer.state, tuple(entry for _, entry in entries), vectors)


class _Screened(NamedTuple):
    """Of the clients whose updates can be used: the Gram matrix with its condition, or the largest absolute values; and
    the lengths, where they are at hand or the rule needs them."""

    gram: Matrix | None = None
    condition: float | None = None
    norms: Vector | None = None
    largest: Vector | None = None


def _screened(rule: Rule, rows: Rows, count: int, good: list[int], dropped: dict[int, str]) -> _Screened:
    """Adds the clients whose updates cannot be used to `dropped`."""
    if "gram" in rule.needs:
        chosen = good + list(range(count, rows.count))
        found = gram_screened(rows.select(chosen))
        dropped |= {chosen[i]: reason for i, reason in found.dropped.items() if chosen[i] < count}
        norms = np.sqrt(np.diag(found.matrix))
        own = [i for i, row in enumerate(found.kept) if chosen[row] < count]
        median = float(np.median(norms[own])) if own else 0.0
        idle = [i for i in own if norms[i] <= IDLE * median]
        for i in idle:
            dropped[chosen[found.kept[i]]] = f"update is negligible: length {norms[i]:.3g}, median {median:.3g}"
        if not idle:
            return _Screened(found.matrix, found.condition, norms[own])
        used = np.setdiff1d(np.arange(len(norms)), idle)
        lengths = norms[[i for i in own if i not in idle]]
        return _Screened(found.matrix[np.ix_(used, used)], found.condition, lengths)
    finite, largest = screen(rows.select(good))
    dropped |= {good[i]: NOT_FINITE for i in np.flatnonzero(~finite)}
    kept = [k for k in good if k not in dropped]
    largest = largest[finite]
    wanted = bool(kept) and "norms" in rule.needs
    return _Screened(norms=products.norms(rows.select(kept), largest) if wanted else None, largest=largest)


def _narrowed(facts: Facts, kept: list[int], screened: _Screened) -> Facts:
    """The facts of the clients that are left."""

    def some(values: Vector | None) -> Vector | None:
        return None if values is None else values[kept]

    return replace(
        facts,
        clients=tuple(facts.clients[k] for k in kept),
        losses=some(facts.losses),
        sizes=some(facts.sizes),
        accuracies=some(facts.accuracies),
        norms=screened.norms,
        gram=screened.gram,
    )


def _bad_facts(rule: Rule, facts: Facts) -> dict[int, str]:
    """A loss that is no number is a sign of diverged training, so it costs a client the round under any rule."""
    losses, sizes, accuracies, needs = facts.losses, facts.sizes, facts.accuracies, rule.needs
    dropped: dict[int, str] = {}
    if accuracies is not None and "accuracies" in needs:
        bad = np.flatnonzero(~((accuracies >= 0) & (accuracies <= 100)))  # as a share or in percent
        dropped |= {int(k): f"accuracy is {accuracies[k]}" for k in bad}
    if sizes is not None and "sizes" in needs:
        bad = np.flatnonzero(~((sizes > 0) & (sizes < np.inf)))
        dropped |= {int(k): f"sample count is {sizes[k]}" for k in bad}
    if losses is not None:
        dropped |= {int(k): f"loss is {losses[k]}" for k in np.flatnonzero(~np.isfinite(losses))}
    return dropped


def _check_state(rule: Rule, round: int, state: RuleState) -> None:
    if round < 1:
        raise AdafedError(f"round is {round}; rounds count from 1")
    rows = 0 if state.vectors is None else len(state.vectors)
    if rows != len(state.memory):
        raise AdafedError(f"state has {rows} vectors and names {len(state.memory)}; save and restore both")
    if state.numbers.keys() != rule.initial_state().keys() or (state.memory and not rule.remembers):
        raise AdafedError(f"state was not made by rule {rule.name}; pass the state of its last round, or none")


def _ids(clients: Sequence[object] | None, count: int) -> tuple[str, ...]:
    ids = tuple(str(client) for client in (range(count) if clients is None else clients))
    if len(ids) != count:
        raise AdafedError(f"clients has {len(ids)} ids for {count} updates; give one for each")
    if len(set(ids)) < count:
        twice = next(client for client in ids if ids.count(client) > 1)
        raise AdafedError(f"client {twice} is there more than once; the ids of a round must differ")
    return ids


def _numbers(name: str, values: Values | None, count: int) -> Vector | None:
    if values is None:
        return None
    if isinstance(values, torch.Tensor | np.ndarray):
        values = values.tolist()
    try:
        if all(type(value) is float for value in values):  # the usual case, and a hundred clients' worth of calls
            numbers = np.array(values, dtype=np.float64)
        else:
            numbers = np.array([np.nan if value is None else _number(value) for value in values], dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise AdafedError(f"{name} is {values!r}; give a list with one number for each client") from None
    if len(numbers) != count:
        raise AdafedError(f"{name} has {len(numbers)} values for {count} updates; give one for each")
    return numbers


def _number(value: Any) -> float:
    return float(value.detach() if isinstance(value, torch.Tensor) else value)  # a loss may come with its graph
