"""Everyone that a rule is shown: the clients of the round that are left, and those that the server remembers.

Members come first, the fresh ones before the remembered; behind them the rows that a rule looks back on by itself.
Nobody is shown twice as a member: a fresh update takes the place of the remembered one. A client whose update was
dropped in this round is shown with its last good one.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import sqrt
from typing import Any

import numpy as np
import torch

from adafed.algebra.gram import gram, within_float32
from adafed.algebra.rows import Array, Rows
from adafed.algebra.sketch import sketched
from adafed.errors import OutOfRange
from adafed.server.memory import Memory, Remember, Row, products
from adafed.server.remaining import Remaining
from adafed.server_rules.base import Answer, Facts, Matrix, Rule, Vector

MIXED = 2**16  # columns at a time
LOST_BY_CANCELLATION = 2.0**-22  # what float32 products lose of the squared length of the terms


@dataclass(frozen=True)
class Everyone:
    """`facts` are the rule's; `older` the remembered rows behind the fresh ones; `matrix` is that of all the rows as
    they were sent. Where storing loses something, `stored` are the fresh rows as they will be read, and `products` are
    those of them with each other and with the older: all made while the older are read anyway. Where sketches are kept
    the matrix is of those, `sketches` are the fresh ones, and older rows may be None. Where they are not true enough to
    be shown, those that are remembered are `hidden`."""

    facts: Facts
    older: Memory
    matrix: Matrix | None
    precise: bool
    stored: list[Row] = field(default_factory=list)
    products: tuple[Matrix, Matrix] | None = None
    sketches: Array | None = None
    hidden: bool = False

    @classmethod
    def of(
        cls,
        left: Remaining,
        rows: Rows,
        known: Memory,
        rule: Rule,
        remember: Remember,
        *,
        hidden: bool = False,
        precise: bool = False,
    ) -> Everyone:
        facts = left.facts_for(rule)
        members, further = _chosen(facts, known, rule, 0 if hidden else remember.horizon)
        older = known.some([*members, *further])
        ages = np.append(np.zeros(facts.count), [facts.round - known.rounds[i] for i in members])
        factors = remember.discount**ages
        norms = _joined(facts.norms, known.lengths[members])
        matrix, shown, precise = None, None, precise or known.precise
        stored: list[Row] = []
        again, sketches = None, None
        if remember.store.sketch:
            sketches = sketched(rows.select(left.kept), remember.store.sketch)
            small, precise = Rows(sketches), True
            between = products(small, older, precise=True)
            matrix = np.block([[gram(small, precise=True), between], [between.T, older.matrix(precise=True)]])
        elif "gram" in rule.needs:
            fresh, own = rows.select(left.kept), left.gram
            assert own is not None
            precise = precise or not within_float32(np.append(own.diagonal(), older.lengths**2), rows.length)
            own = gram(fresh, precise=True) if precise else own
            stored = [] if remember.store.exact else _stored(rows, left, remember)
            both = products(fresh.with_stored(stored), older, precise=precise)
            between = both[: len(left.kept)]
            again = (gram(Rows.of_stored(stored), precise=precise), both[len(left.kept) :]) if stored else None
            matrix = np.block([[own, between], [between.T, older.matrix(precise=precise)]])
        if matrix is not None and "gram" in rule.needs:
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
        return cls(told, older, matrix, precise, stored, again, sketches, hidden)

    def trusted(self, weights: Vector) -> bool:
        """Whether float32 products are exact enough for these coefficients of the updates as they were sent."""
        if self.matrix is None or self.precise:
            return True
        terms = float(np.abs(weights) @ np.sqrt(np.diag(self.matrix)))
        return LOST_BY_CANCELLATION * terms**2 <= 1e-3 * float(weights @ self.matrix @ weights)

    def carried(self, weights: Vector) -> tuple[Vector, list[int]]:
        """The weights when the updates that are not kept whole have none, and the places of the others.

        The others carry them: the direction is projected onto the span of what is whole, which leaves every rate of
        those as the rule has it. The products are of sketches, so they are trusted as far as sketches are exact.
        """
        fresh = len(weights) - len(self.older)
        whole = [i for i in range(len(weights)) if i < fresh or self.older.rows[i - fresh] is not None]
        gone = sorted(set(range(len(weights))) - set(whole))
        if not gone or self.sketches is None or self.matrix is None:
            return weights, whole
        left = np.zeros_like(weights)
        left[whole] = weights[whole]
        able = [i for i in whole if self.matrix[i, i] > 0.0]  # an update of zero carries nothing
        own = self.matrix[np.ix_(able, able)]
        unsure = sqrt(2.0 / self.sketches.shape[1]) * np.diag(np.diag(own))
        try:
            left[able] += np.linalg.solve(own + unsure, self.matrix[np.ix_(able, gone)] @ weights[gone])
        except np.linalg.LinAlgError as error:
            raise OutOfRange(f"the sketches of the updates have no direction in common: {error}") from None
        return left, whole

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
    if everyone is not None and everyone.hidden:  # they had no say, and no products were made
        older = replace(known, coefficients=np.zeros(len(known)))
    elif everyone is not None:
        older, matrix = everyone.older, everyone.matrix
        older = replace(older, coefficients=answer.coefficients[fresh:])
        if matrix is not None:
            older = replace(older, gram=matrix[fresh:, fresh:], precise=everyone.precise)
    here = set(facts.clients)
    stays = [i for i, (c, r) in enumerate(older.names) if c not in here and r > facts.round - horizon]
    stays.sort(key=lambda i: older.rounds[i])
    if remember.store.sketch:
        older = _some_whole(older, stays, max(remember.most - fresh, 0))
    elif remember.most:
        stays = stays[max(len(stays) + fresh - remember.most, 0) :]
    stored = everyone.stored if everyone is not None and everyone.stored else _stored(rows, left, remember)
    named = Memory.of([(client, facts.round) for client in facts.clients], stored)
    if everyone is not None and everyone.sketches is not None:
        named = replace(named, sketches=_stored_sketches(everyone.sketches, left, remember))
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
        sent = rows.select(left.kept)
        return [remember.store.add(_mixed(sent, weights)) for weights in left.mixing]
    found: list[Row] = []
    for place, k in enumerate(left.kept):
        vector = rows.select([k]).block(0, rows.length)[0]
        if left.multipliers is not None:  # one may be too small for the updates' type, and what it makes of them not
            factor = float(left.multipliers[place])
            vector = vector * factor if factor > 1e-30 else (vector.double() * factor).to(vector.dtype)
        found.append(remember.store.add(vector))
    return found


def _mixed(sent: Rows, weights: Vector) -> torch.Tensor:
    """The weighted sum of rows that may be in a file, and larger together than memory."""
    weigh = torch.from_numpy(weights)
    parts = [
        (weigh.to(block.device) @ block.double()).to(block.dtype)
        for block in (sent.block(at, min(at + MIXED, sent.length)) for at in range(0, sent.length, MIXED))
    ]
    return torch.cat(parts)


def _stored_sketches(sent: Array, left: Remaining, remember: Remember) -> tuple[Row, ...]:
    """A sketch is a linear map: that of what is shown is made from those of what was sent."""
    store = remember.store.sketches
    assert store is not None
    with np.errstate(over="ignore"):
        if left.mixing is not None:
            sent = left.mixing @ sent
        elif left.multipliers is not None:
            sent = left.multipliers[:, None] * sent
        kept = sent.astype(np.float32)
    if not np.isfinite(kept).all():
        raise OutOfRange("an update is too long for a sketch of it; a guard would shorten it, as in guards='default'")
    return tuple(store.add(torch.from_numpy(sketch)) for sketch in kept)


def _some_whole(older: Memory, stays: list[int], most: int) -> Memory:
    """With so many updates kept whole, the newest."""
    whole = {i for i in stays if older.rows[i] is not None}
    whole = set(sorted(whole, key=lambda i: older.rounds[i])[len(whole) - min(most, len(whole)) :])
    return replace(older, rows=tuple(row if i in whole else None for i, row in enumerate(older.rows)))


def _chosen(facts: Facts, known: Memory, rule: Rule, horizon: int) -> tuple[list[int], list[int]]:
    """The places of the remembered members, up to that age, and of the further rows that the rule looks back on."""
    here = set(facts.clients)
    members, further = [], []
    usable = np.ones(len(known), bool)
    for need, told in (
        ("losses", known.losses),
        ("sizes", known.sizes),
        ("accuracies", known.accuracies),
        ("norms", known.lengths),
    ):
        if need in rule.needs:
            usable &= np.isfinite(told)
    if "gram" in rule.needs:  # a rule of an earlier stage may have kept an update of zero, and not asked for its length
        zero = [known.is_zero(i) if np.isnan(one) else one == 0.0 for i, one in enumerate(known.lengths)]
        usable &= ~np.array(zero, bool)
    for i, (client, round_) in enumerate(known.names):
        age = facts.round - round_
        if client in here:
            further += [i] if rule.previous else []
        elif usable[i] and age <= horizon:
            members.append(i)
        elif age <= rule.remembers:
            further.append(i)
    return members, further


def _joined(fresh: Vector | None, remembered: Vector, factors: Vector | None = None) -> Vector | None:
    if fresh is None or not np.isfinite(remembered).all():
        return None
    both = np.append(fresh, remembered)
    return both if factors is None else both * factors
