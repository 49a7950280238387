"""The clients of a round that are left: what guards and the rule see of them, and who was dropped or bounded and why.

A dropped client's row is left out of every product rather than multiplied by zero, since 0 * NaN is NaN.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from adafed.algebra import products
from adafed.algebra.gram import NOT_FINITE, ZERO, gram_screened, screen
from adafed.algebra.rows import Rows
from adafed.errors import AdafedError
from adafed.imported import maybe_own, ours
from adafed.server_rules.base import Facts, Matrix, Need, Numbers, Rule, Vector, altered
from adafed.server_rules.guards.base import Guard, Step, Verdict

Array = npt.NDArray[np.float64]
UNREADABLE = (TypeError, ValueError, KeyError, IndexError, AttributeError, ArithmeticError)
BOUNDED_FACTS = ("losses", "sizes", "accuracies")  # those that a guard may answer with others


@dataclass(frozen=True)
class Remaining:
    """`facts` is what the next guard or the rule is shown, multipliers included; `gram`, `condition` and `largest` (the
    largest absolute values, where there is no matrix) are of the updates as they were sent. `kept` and `remembered` are
    the rows of the matrix: clients and, for rules that look back, earlier updates. Reasons are by row. Where a guard
    has mixed updates, `mixing` makes what is shown of those that were sent, multipliers included. `states` are the
    guards', by their places in the chain."""

    facts: Facts
    kept: list[int]
    remembered: list[int] = field(default_factory=list)
    gram: Matrix | None = None
    condition: float | None = None
    largest: Vector | None = None
    multipliers: Vector | None = None
    mixing: Matrix | None = None
    dropped: dict[int, str] = field(default_factory=dict)
    bounded: dict[int, str] = field(default_factory=dict)
    warned: dict[int, str] = field(default_factory=dict)
    states: dict[str, Numbers] = field(default_factory=dict)

    @classmethod
    def all_of(cls, facts: Facts) -> Remaining:
        return cls(facts, list(range(facts.count)))

    def screened(self, guard: Guard, needs: frozenset[Need]) -> Remaining:
        """Those that one of the package's own screens leaves; these only drop, and are trusted with the facts."""
        return self._without(guard.judge(self.facts, needs).dropped)

    def guarded(self, guards: Sequence[Guard], needs: frozenset[Need], states: dict[str, Numbers]) -> Remaining:
        """Those that the guards leave, one after the other, as they leave them."""
        left, shown, states = self, None, dict(states)
        for place, guard in enumerate(guards):
            if not left.kept:
                break
            shown = left._shown() if shown is None else shown
            where = f"{place} {guard.name}"
            state = states.get(where, {})
            with maybe_own("guards.use", guard):
                try:
                    verdict = guard.judge_with(shown, needs, state)
                except UNREADABLE as error:
                    _blame_state(guard, state, error)
                    raise
            if not _nothing(verdict, shown):  # as most rounds of most guards are
                _check(guard, shown, verdict)
                left, shown = left._after(verdict, shown), None
            if verdict.state is not None:
                states[where] = verdict.state
        return altered(left, states=states)

    def _after(self, verdict: Verdict, shown: Facts) -> Remaining:
        """Those that a guard leaves, as it leaves them."""
        found = self._with_facts(verdict.facts, shown)._multiplied(verdict.multipliers)._mixed(verdict.mixing)
        bounded, warned = self._told(self.bounded, verdict.bounded), self._told(self.warned, verdict.warned)
        return altered(found, bounded=bounded, warned=warned)._without(verdict.dropped)

    def looking_back(self, guards: Sequence[Guard], step: Step) -> Remaining:
        """With what guards that look back make of the step."""
        warned, states = self.warned, dict(self.states)
        for place, guard in enumerate(guards):
            if learns(guard):
                where = f"{place} {guard.name}"
                before = states.get(where, {})
                try:
                    state, found = guard.learned(step, before)
                except UNREADABLE as error:
                    _blame_state(guard, before, error)
                    raise
                warned = self._told(warned, found)
                if found or state != before:
                    states[where] = state
        return altered(self, warned=warned, states=states)

    def _told(self, before: dict[int, str], found: Mapping[int, str]) -> dict[int, str]:
        """Reasons of clients counted as in the facts, after those that are there."""
        if not found:
            return before
        reasons = [(self.kept[k], why) for k, why in sorted(found.items())]
        return before | {k: f"{before[k]}; {why}" if k in before else why for k, why in reasons}

    def read(self, rows: Rows, needs: frozenset[Need], rule: Rule) -> Remaining:
        """Those whose updates can be used, with what is needed of them: the only read of the rows before their sum."""
        if "gram" in needs:
            return self._with_gram(rows, solved="gram" in rule.needs)
        finite, largest = screen(rows.select(self.kept))
        left = altered(self, largest=largest)._without(dict.fromkeys(np.flatnonzero(~finite).tolist(), NOT_FINITE))
        if not left.kept or "norms" not in needs:
            return left
        norms = products.norms(rows.select(left.kept), left.largest)
        return altered(left, facts=altered(left.facts, norms=norms))

    def facts_for(self, rule: Rule) -> Facts:
        """Without what a guard alone has asked for."""
        if "gram" in rule.needs or (self.facts.gram is None and self.facts.norms is None):
            return self.facts
        return altered(self.facts, gram=None, norms=self.facts.norms if "norms" in rule.needs else None)

    def _with_gram(self, rows: Rows, *, solved: bool) -> Remaining:
        """A zero update is dropped only where the rule itself solves with the matrix."""
        own, facts = len(self.kept), self.facts
        chosen = self.kept + (list(range(rows.count - len(facts.memory), rows.count)) if solved else [])
        found = gram_screened(rows.select(chosen), solved=solved)
        matrix, used, lost = found.matrix, found.kept.tolist(), found.dropped
        if not solved and ZERO in lost.values():
            lost = {i: why for i, why in lost.items() if why != ZERO}
            used = [i for i in range(own) if i not in lost]
            matrix = np.zeros((len(used), len(used)))
            matrix[np.ix_(*2 * [np.searchsorted(used, found.kept)])] = found.matrix
        left = [i for i in used if i < own]
        older = [chosen[i] for i in used if i >= own]
        if len(left) < own:
            facts = _narrowed(facts, left)
        if solved and len(older) < len(facts.memory):
            facts = altered(facts, memory=tuple(facts.memory[row - rows.count] for row in older))
        return altered(
            self,
            facts=altered(facts, norms=np.sqrt(matrix.diagonal())[: len(left)], gram=matrix),
            kept=[self.kept[i] for i in left],
            remembered=older,
            gram=matrix,
            condition=found.condition if solved else None,
            dropped=self.dropped | {self.kept[i]: why for i, why in lost.items() if i < own},
        )

    def _shown(self) -> Facts:
        """The facts of the clients alone, without remembered updates."""
        facts, count = self.facts, self.facts.count
        return altered(
            facts,
            losses=_read_only(facts.losses),
            sizes=_read_only(facts.sizes),
            accuracies=_read_only(facts.accuracies),
            norms=_read_only(facts.norms),
            gram=_read_only(None if facts.gram is None else facts.gram[:count, :count]),
            memory=(),
        )

    def _with_facts(self, given: Facts, shown: Facts) -> Remaining:
        changed = {
            name: getattr(given, name) for name in BOUNDED_FACTS if getattr(given, name) is not getattr(shown, name)
        }
        return altered(self, facts=altered(self.facts, **changed)) if changed else self

    def _multiplied(self, multipliers: Vector | None) -> Remaining:
        if multipliers is None or (multipliers == 1.0).all():
            return self
        norms, gram = self.facts.norms, self.facts.gram
        if gram is not None:
            factors = _with_ones(multipliers, len(gram))
            gram = gram * factors * factors[:, None]
        facts = altered(self.facts, norms=None if norms is None else norms * multipliers, gram=gram)
        before = 1.0 if self.multipliers is None else self.multipliers
        mixing = None if self.mixing is None else multipliers[:, None] * self.mixing
        return altered(self, facts=facts, multipliers=multipliers * before, mixing=mixing)

    def _mixed(self, mixing: Matrix | None) -> Remaining:
        if mixing is None:
            return self
        count, norms, gram = self.facts.count, self.facts.norms, self.facts.gram
        if gram is not None:
            whole = np.eye(len(gram))
            whole[:count, :count] = mixing
            gram = whole @ gram @ whole.T
            gram = (gram + gram.T) / 2.0
            norms = np.sqrt(np.diag(gram)[:count])
        before = np.diag(np.ones(count) if self.multipliers is None else self.multipliers)
        before = before if self.mixing is None else self.mixing
        return altered(self, facts=altered(self.facts, norms=norms, gram=gram), mixing=mixing @ before)

    def of_sent(self, coefficients: Vector) -> Vector:
        """Coefficients of what is shown (and of remembered rows, which are as they were) as those of what was sent."""
        if self.mixing is not None:
            own = len(self.kept)
            return np.append(coefficients[:own] @ self.mixing, coefficients[own:])
        if self.multipliers is not None:
            return coefficients * _with_ones(self.multipliers, len(coefficients))
        return coefficients

    def as_shown(self, matrix: Matrix) -> Matrix:
        """The Gram matrix of what is shown and other rows, from that of what was sent and the same rows."""
        if self.mixing is not None:
            whole = np.eye(len(matrix))
            whole[: len(self.kept), : len(self.kept)] = self.mixing
            shown = whole @ matrix @ whole.T
            return np.asarray((shown + shown.T) / 2.0)
        if self.multipliers is not None:
            factors = _with_ones(self.multipliers, len(matrix))
            return np.asarray(matrix * factors * factors[:, None])
        return matrix

    def _without(self, dropped: Mapping[int, str]) -> Remaining:
        """Without these clients, counted as in the facts."""
        if not dropped:
            return self
        count = self.facts.count
        left = [i for i in range(count) if i not in dropped]
        reasons = {self.kept[i]: why for i, why in dropped.items()}
        found = altered(
            self,
            facts=_narrowed(self.facts, left),
            kept=[self.kept[i] for i in left],
            gram=_block(self.gram, left, count),
            largest=_some(self.largest, left),
            multipliers=_some(self.multipliers, left),
            mixing=None if self.mixing is None else self.mixing[np.ix_(left, left)],
            dropped=self.dropped | reasons,
            bounded={k: why for k, why in self.bounded.items() if k not in reasons},
        )
        if found.mixing is None or found.gram is None:
            return found
        shown = found.as_shown(found.gram)  # what was mixed of those that are left out is gone from the others too
        return altered(found, facts=altered(found.facts, gram=shown, norms=np.sqrt(shown.diagonal()[: len(left)])))


def learns(guard: Guard) -> bool:
    """Whether it is to be told of the step."""
    return type(guard).learned is not Guard.learned


def _blame_state(guard: Guard, state: Numbers, error: Exception) -> None:
    """A guard of ours that cannot read the state that was handed in was handed another's."""
    if state and ours(guard) and not isinstance(error, AdafedError):
        raise AdafedError(
            f"state was not made by guard {guard.name}; pass the state of the last round, or none"
        ) from error


def _narrowed(facts: Facts, left: list[int]) -> Facts:
    """The facts of these clients; the rows of remembered updates stay."""
    return altered(
        facts,
        clients=tuple(facts.clients[i] for i in left),
        losses=_some(facts.losses, left),
        sizes=_some(facts.sizes, left),
        accuracies=_some(facts.accuracies, left),
        norms=_some(facts.norms, left),
        gram=_block(facts.gram, left, facts.count),
    )


def _some(values: Vector | None, left: list[int]) -> Vector | None:
    return None if values is None else values[left]


def _block(matrix: Matrix | None, left: list[int], count: int) -> Matrix | None:
    if matrix is None:
        return None
    rows = left + list(range(count, len(matrix)))
    return matrix[np.ix_(rows, rows)]


def _with_ones(multipliers: Vector, length: int) -> Vector:
    """The clients' multipliers, and 1 for every remembered row behind them."""
    return np.append(multipliers, np.ones(length - len(multipliers))) if length > len(multipliers) else multipliers


def _read_only(values: Array | None) -> Array | None:
    if values is not None:
        values = values.view()
        values.flags.writeable = False
    return values


def _nothing(verdict: Verdict, shown: Facts) -> bool:
    return (
        isinstance(verdict, Verdict)
        and verdict.facts is shown
        and verdict.multipliers is None
        and verdict.mixing is None
        and not (verdict.dropped or verdict.bounded or verdict.warned)
    )


def _check(guard: Guard, shown: Facts, verdict: Verdict) -> None:
    """What a guard may answer."""
    where = f"guard {guard.name} answered with"
    if not isinstance(verdict, Verdict):
        raise AdafedError(f"{where} {type(verdict).__name__}; it must be a Verdict")
    for name in BOUNDED_FACTS:
        before, after = getattr(shown, name), getattr(verdict.facts, name)
        if after is not before and (before is None or not _one_each(after, shown.count)):
            raise AdafedError(
                f"{where} {name} {after}; they must be one finite number for each of {shown.count} clients"
            )
    factors = verdict.multipliers
    if factors is not None and not (_one_each(factors, shown.count) and (factors > 0).all()):
        raise AdafedError(
            f"{where} multipliers {factors}; they must be one number above 0 for each of {shown.count} clients"
        )
    mixing = verdict.mixing
    if mixing is not None and not _square(mixing, shown.count):
        raise AdafedError(
            f"{where} mixing {mixing}; it must be a finite matrix of {shown.count} x {shown.count} numbers"
        )
    if mixing is not None and shown.gram is None:
        raise AdafedError(f"{where} mixing; a guard that mixes updates must need 'gram'")
    for k in _positions(verdict):
        if k not in range(shown.count):
            raise AdafedError(f"{where} client {k!r}; it must be a position from 0 to {shown.count - 1}")


def _one_each(values: object, count: int) -> bool:
    return isinstance(values, np.ndarray) and values.shape == (count,) and bool(np.isfinite(values).all())


def _square(values: object, count: int) -> bool:
    return isinstance(values, np.ndarray) and values.shape == (count, count) and bool(np.isfinite(values).all())


def _positions(verdict: Verdict) -> Iterable[int]:
    return (*verdict.dropped, *verdict.bounded, *verdict.warned)
