"""What a guard is: it looks at the facts before the rule does, and says who is dropped and who is bounded.

Like a rule, a guard never sees the updates: it sees the facts of the clients that are left, and if it asks, the lengths
of their updates or the Gram matrix. What it does to an update is a multiplier, or a part of others added to it, which
costs no pass over the d numbers: it goes into the coefficients of the weighted sum.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from adafed.errors import AdafedError
from adafed.registry import Named, Registry, described, options
from adafed.server_rules.base import Facts, Matrix, Need, Numbers, Vector

MAY_NEED = frozenset({"losses", "sizes", "accuracies", "norms", "gram"})


def median(values: list[float]) -> float:
    """The same as numpy's, which takes longer over a cohort than the guards do over all else. Guards look at a cohort's
    numbers as a list: a call of numpy costs as much as Python's work on dozens of them."""
    ordered = sorted(values)
    return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2.0


@dataclass(frozen=True)
class Verdict:
    """A guard's answer; clients are counted as in the facts it was shown.

    Attributes:
        facts: Those facts with other losses, sizes or accuracies, or as they were.
        multipliers: A number above 0 for each client: its update counts as so many times itself, for later guards and
            for the rule.
        dropped: Whom to leave out, and why.
        bounded: Who was bounded, and how.
        mixing: After the multipliers, a row for each client: its update counts as the sum of mixing[k, j] g_j.
        warned: What was seen and left alone.
        state: For guards that look back.
    """

    facts: Facts
    multipliers: Vector | None = None
    dropped: dict[int, str] = field(default_factory=dict)
    bounded: dict[int, str] = field(default_factory=dict)
    mixing: Matrix | None = None
    warned: dict[int, str] = field(default_factory=dict)
    state: Numbers | None = None


@dataclass(frozen=True)
class Guard(Named, ABC):
    """Base of all guards: a frozen dataclass whose fields are its options.

    Attributes:
        name: What it is registered under, or `module:attribute`.
        summary: A line for lists.
    """

    @property
    def needs(self) -> frozenset[Need]:
        """The facts without which it cannot judge, among losses, sizes, accuracies, norms and gram."""
        return frozenset()

    @abstractmethod
    def judge(self, facts: Facts, needs: frozenset[Need]) -> Verdict:
        """The verdict on these clients, before a rule that needs `needs`.

        The facts are in the order of the clients, and their arrays cannot be written to. Pure, and blind to the order:
        the same facts give the same verdict, and the same clients in another order the same for each.
        """

    def judge_with(self, facts: Facts, needs: frozenset[Need], state: Numbers) -> Verdict:
        """As `judge`, for those that look back."""
        return self.judge(facts, needs)

    def learned(self, step: Step, state: Numbers) -> tuple[Numbers, dict[int, str]]:
        """The next state when the step is known, and warnings, by place in `step.clients`; for those that look back."""
        return state, {}

    def options(self) -> dict[str, Any]:
        return options(self)

    def __str__(self) -> str:
        return described(self)


@dataclass(frozen=True)
class Step:
    """What came of a round, for guards that look back: the clients that were left, in the order of the facts, with the
    share of the direction that each holds (y_k g_k . d / ||d||^2, which add up to 1 where nobody is remembered; all 0
    where d is but rounding), their rates g_k . d, ||d|| and the length of the mean update."""

    clients: tuple[str, ...]
    shares: Vector
    rates: Vector
    norm: float
    mean_norm: float


@dataclass(frozen=True)
class LookingBack(Guard):
    """A guard that carries something from round to round: JSON-able numbers, saved with the rule's. It begins with an
    empty state."""

    def judge(self, facts: Facts, needs: frozenset[Need]) -> Verdict:
        return self.judge_with(facts, needs, {})

    @abstractmethod
    def judge_with(self, facts: Facts, needs: frozenset[Need], state: Numbers) -> Verdict:
        """As `judge`; `Verdict.state` is the state for `learned` and the next round, the old one where it is None."""


class Chain(tuple[Guard, ...]):
    """Guards in the order they act in. A run asks the same ones every round."""

    @cached_property
    def needs(self) -> frozenset[Need]:
        """What they need together."""
        return frozenset[Need]().union(*(guard.needs for guard in self))


DEFAULT = "default"
GUARDS: Registry[type[Guard]] = Registry("guard", base=Guard, name_key="guards.use", beside=(DEFAULT,))
# What `"default"` stands for. The veto looks at losses as they were reported, so it comes first.
DEFAULT_GUARDS = ("veto", "losses", "claims", "sizes", "lengths", "copies", "history", "stall")
UNASKED = ("diverged",)  # what a run has that names none


def guards_from(entries: Sequence[tuple[str, dict[str, Any]]]) -> Chain:
    """Guards by name, each with its options, as a configuration has them; "default" stands for the default ones."""
    found: list[Guard] = []
    for name, given in entries:
        if name == DEFAULT and given:
            raise AdafedError(
                f"default.{min(given)} is unknown; guards.use = 'default' has no options: name the guards"
            )
        names = DEFAULT_GUARDS if name == DEFAULT else (name,)
        found += [GUARDS.make(one, **given) for one in names]
    return Chain(found)


def resolved(guards: Sequence[Guard | str] | str) -> Chain:
    """Guards given as they are, or by name with the options at their defaults; "default" stands for the default ones,
    alone or in a list."""
    chain = guards if isinstance(guards, Chain) else _chain(guards)
    if not chain.needs <= MAY_NEED:
        name, unknown = next((guard.name, min(more)) for guard in chain if (more := guard.needs - MAY_NEED))
        raise AdafedError(f"guard {name} needs {unknown!r}; it may need {', '.join(sorted(MAY_NEED))}")
    return chain


def _chain(guards: Sequence[Guard | str] | str) -> Chain:
    if isinstance(guards, str) and guards == DEFAULT:
        guards = (DEFAULT,)
    if isinstance(guards, (str, Guard)) or not isinstance(guards, Iterable):
        raise AdafedError(f"guards is {guards!r}; give 'default', or a list of guards in the order they act in")
    found: list[Guard] = []
    for one in guards:
        if isinstance(one, str):
            found += guards_from([(one, {})])
        elif isinstance(one, Guard):
            found.append(one)
        else:
            raise AdafedError(f"guards has {one!r}; give guards, or their names")
    return Chain(found)
