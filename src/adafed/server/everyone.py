"""Everyone that a rule is shown: the clients of the round that are left, and those that the server remembers.

Members come first, the fresh ones before the remembered; behind them the rows that a rule looks back on by itself.
Nobody is shown twice as a member: a fresh update takes the place of the remembered one. A client whose update was
dropped in this round is shown with its last good one.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from adafed.algebra.gram import gram
from adafed.algebra.rows import Rows
from adafed.server.memory import Memory, Remember, Row, products
from adafed.server.remaining import Remaining
from adafed.server_rules.base import Answer, Facts, Matrix, Rule, Vector

LOST_BY_CANCELLATION = 2.0**-22  # what float32 products lose of the squared length of the terms


@dataclass(frozen=True)
class Everyone:
    """`facts` are the rule's; `older` the remembered rows behind the fresh ones; `matrix` is that of all the rows as
    they were sent. Where storing loses something, `stored` are the fresh rows as they will be read, and `products` are
    those of them with each other and with the older: all made while the older are read anyway."""

    facts: Facts
    older: Memory
    matrix: Matrix | None
    precise: bool
    stored: list[Row] = field(default_factory=list)
    products: tuple[Matrix, Matrix] | None = None

    @classmethod
    def of(
        cls, left: Remaining, rows: Rows, known: Memory, rule: Rule, remember: Remember, *, precise: bool = False
    ) -> Everyone:
        facts = left.facts_for(rule)
        members, further = _chosen(facts, known, rule, remember)
        older = known.some([*members, *further])
        ages = np.append(np.zeros(facts.count), [facts.round - known.rounds[i] for i in members])
        factors = remember.discount**ages
        norms = _joined(facts.norms, known.lengths[members])
        matrix, shown, precise = None, None, precise or known.precise
        stored: list[Row] = []
        again = None
        if "gram" in rule.needs:
            fresh = rows.select(left.kept)
            own = gram(fresh, precise=True) if precise else left.gram
            assert own is not None
            stored = [] if remember.store.exact else _stored(rows, left, remember)
            both = products(fresh.with_stored(stored), older, precise=precise)
            between = both[: len(left.kept)]
            again = (gram(Rows.of_stored(stored), precise=precise), both[len(left.kept) :]) if stored else None
            matrix = np.block([[own, between], [between.T, older.matrix(precise=precise)]])
            shown = left.as_shown(matrix)
            norms = np.sqrt(np.diag(shown))[: len(ages)]
        clients = facts.clients + tuple(known.clients[i] for i in members)
        coefficients = dict(zip(known.clients, known.coefficients.tolist(), strict=True))
        told = replace(
            facts,
            clients=clients,
            losses=_joined(facts.losses, known.losses[members], factors),
            sizes=_joined(facts.sizes, known.sizes[members], factors),
            accuracies=_joined(facts.accuracies, known.accuracies[members]),
            norms=norms,
            gram=shown,
            memory=tuple((known.clients[i], known.rounds[i]) for i in further),
            ages=ages,
            last=np.array([coefficients.get(client, 0.0) for client in clients]),
        )
        return cls(told, older, matrix, precise, stored, again)

    def trusted(self, weights: Vector) -> bool:
        """Whether float32 products are exact enough for these coefficients of the updates as they were sent."""
        if self.matrix is None or self.precise:
            return True
        terms = float(np.abs(weights) @ np.sqrt(np.diag(self.matrix)))
        return LOST_BY_CANCELLATION * terms**2 <= 1e-3 * float(weights @ self.matrix @ weights)

    def told(self, weights: Vector) -> dict[str, Any]:
        """How many are remembered, how old the oldest is, and which share of the coefficients is theirs."""
        size, fresh = np.abs(weights), len(weights) - len(self.older)
        share = float(size[fresh:].sum() / max(float(size.sum()), 1e-300))
        oldest = self.facts.round - min(self.older.rounds)
        return {"memory": {"clients": len(self.older), "oldest": oldest, "share": round(share, 4)}}


def next_memory(
    known: Memory,
    everyone: Everyone | None,
    left: Remaining,
    rows: Rows,
    answer: Answer,
    remember: Remember,
    horizon: int,
) -> Memory:
    """The last update of every client heard within the horizon, as the rule saw it; a newer one replaces an older, and
    those that were dropped are not among the newer."""
    if not left.kept:  # every update is zero, so there is nothing newer
        return known.some([i for i, round_ in enumerate(known.rounds) if round_ > left.facts.round - horizon])
    facts, fresh = left.facts, len(left.kept)
    older, matrix = known, None
    if everyone is not None:
        older, matrix = everyone.older, everyone.matrix
        older = replace(older, coefficients=answer.coefficients[fresh:])
        if matrix is not None:
            older = replace(older, gram=matrix[fresh:, fresh:], precise=everyone.precise)
    here = set(facts.clients)
    stays = [i for i, (c, r) in enumerate(older.names) if c not in here and r > facts.round - horizon]
    stays.sort(key=lambda i: older.rounds[i])
    if remember.most:
        stays = stays[max(len(stays) + fresh - remember.most, 0) :]
    stored = everyone.stored if everyone is not None and everyone.stored else _stored(rows, left, remember)
    named = Memory.of([(client, facts.round) for client in facts.clients], stored)
    new = named.telling(facts.losses, facts.sizes, facts.accuracies, facts.norms, answer.coefficients[:fresh])
    staying = older.some(stays)
    if matrix is None or everyone is None:
        return replace(staying, gram=None).after(new, None)
    if everyone.products is not None:
        own, between = everyone.products
    else:
        shown = left.as_shown(matrix)
        own, between = shown[:fresh, :fresh], shown[:fresh, fresh:]
    return staying.after(replace(new, gram=own, precise=everyone.precise), between[:, stays].T)


def _stored(rows: Rows, left: Remaining, remember: Remember) -> list[Row]:
    if left.mixing is not None:
        sent = rows.select(left.kept).block(0, rows.length)
        return [remember.store.add(row) for row in torch.from_numpy(left.mixing).to(sent) @ sent]
    found: list[Row] = []
    for place, k in enumerate(left.kept):
        vector = rows.select([k]).block(0, rows.length)[0]
        if left.multipliers is not None:
            vector = vector * float(left.multipliers[place])
        found.append(remember.store.add(vector))
    return found


def _chosen(facts: Facts, known: Memory, rule: Rule, remember: Remember) -> tuple[list[int], list[int]]:
    """The places of the remembered members, and of the further rows that the rule looks back on."""
    here = set(facts.clients)
    members, further = [], []
    usable = np.ones(len(known), bool)
    for need, told in (("losses", known.losses), ("sizes", known.sizes), ("accuracies", known.accuracies)):
        if need in rule.needs:
            usable &= np.isfinite(told)
    for i, (client, round_) in enumerate(known.names):
        age = facts.round - round_
        if client in here:
            further += [i] if rule.previous else []
        elif usable[i] and age <= remember.horizon:
            members.append(i)
        elif age <= rule.remembers:
            further.append(i)
    return members, further


def _joined(fresh: Vector | None, remembered: Vector, factors: Vector | None = None) -> Vector | None:
    if fresh is None or not np.isfinite(remembered).all():
        return None
    both = np.append(fresh, remembered)
    return both if factors is None else both * factors
