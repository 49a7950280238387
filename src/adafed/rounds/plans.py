"""The client rules' half of the server: their plans, made once for a run, and what these give to a round.

`ServerHalf` calls this before a round (orders, vectors that go out) and after it (what came back, added up).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from adafed.algebra.gram import screen
from adafed.algebra.rows import Rows, Updates
from adafed.algebra.weighted_sum import weighted_sum
from adafed.client_rules.base import ClientRule, Orders, Plan, Setting, Tensors
from adafed.errors import AdafedError
from adafed.rounds.replies import Reply
from adafed.server.aggregate import Aggregate
from adafed.server.state import ServerState


@dataclass(frozen=True)
class Ruled:
    """A client rule with its half of the server."""

    rule: ClientRule
    plan: Plan


def ruled_by(rules: Sequence[ClientRule], setting: Setting) -> tuple[Ruled, ...]:
    """The rules with their plans, which must not want the same."""
    ruled = tuple(Ruled(rule, rule.plan(setting)) for rule in rules)
    for rule in rules:
        if strange := set(rule.sums) - {"update", *rule.sends}:
            raise AdafedError(f"client rule {rule.name} sums {min(strange)!r}; it must be 'update' or among its sends")
    drawing = [one.rule.name for one in ruled if type(one.plan).draw is not Plan.draw]
    if len(drawing) > 1:
        raise AdafedError(f"{' and '.join(drawing)} each plan who takes part in a round; leave all but one out")
    return ruled


def orders(ruled: Sequence[Ruled], known: Tensors, round: int, clients: Sequence[int]) -> list[dict[str, Orders]]:
    """What the server tells each of these clients alone, by client rule."""
    found: list[dict[str, Orders]] = [{} for _ in clients]
    for one in ruled:
        if type(one.plan).orders is Plan.orders:
            continue
        own = one.rule.own(known)
        for told, client in zip(found, clients, strict=True):
            given = one.plan.orders(round, client, own)
            told |= {one.rule.name: given} if given else {}
    return found


def broadcast(ruled: Sequence[Ruled], state: ServerState) -> torch.Tensor:
    """The model and, behind it, the vectors that the clients' rules receive."""
    found = [state.parameters]
    for one in ruled:
        vectors = one.plan.broadcast(one.rule.own(state.known)) if one.rule.receives else {}
        for name in one.rule.receives:
            if name not in vectors or vectors[name].shape != (state.length,):
                raise AdafedError(
                    f"client rule {one.rule.name} receives {name!r}, which Plan.broadcast does not give; it must "
                    f"be a vector of the parameters' length, {state.length}"
                )
            found.append(vectors[name])
    return found[0] if len(found) == 1 else torch.cat(found)


def summed(
    ruled: Sequence[Ruled],
    state: ServerState,
    replies: Sequence[Reply],
    updates: Updates | None,
    outcome: Aggregate | None,
) -> tuple[Tensors, torch.Tensor | None]:
    """What the client rules know after their vectors were added up, and what they add to the direction. What
    screening and guards dropped or bounded is dropped and bounded here too."""
    known, term, places = dict(state.known), None, taken(outcome)
    weights = np.ones(len(places))
    if outcome is not None and outcome.diagnostics.multipliers is not None:
        weights = outcome.diagnostics.multipliers[places]
    for rule, plan in ((one.rule, one.plan) for one in ruled if one.rule.sums and places):
        sums: Tensors = {}
        for name in rule.sums:
            if name == "update":
                rows = Rows(updates if updates is not None else [reply.update for reply in replies])
            else:
                rows = Rows([reply.vectors[f"{rule.name}.{name}"] for reply in replies])
            finite = screen(rows.select(places))[0]
            there = [k for k, good in zip(places, finite, strict=True) if good]
            total = weighted_sum(rows.select(there), weights[finite]) if there else None
            usable = total is not None and bool(total.isfinite().all())
            sums[name] = total if usable and total is not None else torch.zeros(rows.length, dtype=rows.dtype)
        own, more = plan.summed(rule.own(known), sums)
        known |= rule.named(own)
        if more is not None:
            _require_term(rule, more, state.length)
            term = more if term is None else term + more
    return known, term


def taken(outcome: Aggregate | None) -> list[int]:
    """The places of the replies that were not dropped."""
    return [] if outcome is None else [k for k, rate in enumerate(outcome.diagnostics.rates) if not np.isnan(rate)]


def _require_term(rule: ClientRule, term: torch.Tensor, length: int) -> None:
    if not isinstance(term, torch.Tensor) or term.shape != (length,) or not bool(term.isfinite().all()):
        what = f"a tensor of shape {tuple(term.shape)}" if isinstance(term, torch.Tensor) else type(term).__name__
        raise AdafedError(
            f"client rule {rule.name}: Plan.summed gave {what} to add to the direction; it must be a finite vector of "
            f"{length} numbers"
        )
