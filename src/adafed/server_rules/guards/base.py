"""What a guard is: it looks at the facts before the rule does, and says who is dropped and who is bounded.

Like a rule, a guard never sees the updates: it sees the facts of the clients that are left, and if it asks, the lengths
of their updates or the Gram matrix. What it does to an update is a multiplier, which costs no pass over the d numbers:
it goes into the coefficient of the weighted sum.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from adafed.errors import AdafedError
from adafed.registry import Named, Registry, described, options
from adafed.server_rules.base import Facts, Need, Vector

MAY_NEED = frozenset({"losses", "sizes", "accuracies", "norms", "gram"})


@dataclass(frozen=True)
class Verdict:
    """A guard's answer; clients are counted as in the facts it was shown.

    `facts` are those facts with other losses, sizes or accuracies, or as they were. `multipliers` has a number above 0
    for each client: its update counts as so many times itself, for later guards and for the rule. `dropped` and
    `bounded` say why.
    """

    facts: Facts
    multipliers: Vector | None = None
    dropped: dict[int, str] = field(default_factory=dict)
    bounded: dict[int, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Guard(Named, ABC):
    """Base of all guards: a frozen dataclass whose fields are its options. `summary` is a line for lists."""

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

    def options(self) -> dict[str, Any]:
        return options(self)

    def __str__(self) -> str:
        return described(self)


GUARDS: Registry[type[Guard]] = Registry("guard", base=Guard, name_key="guards.use")


def guards_from(entries: Sequence[tuple[str, dict[str, Any]]]) -> tuple[Guard, ...]:
    """Guards by name, each with its options, as a configuration has them."""
    return tuple(GUARDS.make(name, **given) for name, given in entries)


def resolved(guards: Sequence[Guard | str]) -> tuple[Guard, ...]:
    """Guards given as they are, or by name with the options at their defaults."""
    if isinstance(guards, str | Guard):
        raise AdafedError(f"guards is {guards!r}; give a list of guards, in the order they act in")
    found = []
    for one in guards:
        guard = GUARDS.make(one) if isinstance(one, str) else one
        if not isinstance(guard, Guard):
            raise AdafedError(f"guards has {one!r}; give guards, or their names")
        if unknown := guard.needs - MAY_NEED:
            raise AdafedError(f"guard {guard.name} needs {min(unknown)!r}; it may need {', '.join(sorted(MAY_NEED))}")
        found.append(guard)
    return tuple(found)
