"""The contract's own test: rules that break one property each are caught, in a sentence that names it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import pytest

from adafed import Facts, Rule
from adafed.server_rules import Answer
from adafed.server_rules.base import Need, Numbers
from adafed.testing.server_rules import PROPERTIES, check_rule


@dataclass(frozen=True)
class Fair(Rule):
    """The plain mean, by a class that nobody registered."""

    summary = "the plain mean"
    lean: float = field(default=0.0, metadata={"key": "lambda", "help": "how much a larger loss weighs"})

    @property
    def needs(self) -> frozenset[Need]:
        return frozenset({"losses"})

    def answer(self, facts: Facts, state: Numbers) -> Answer:
        rank = np.empty(facts.count)
        rank[facts.order_by_loss()] = np.arange(facts.count)
        weights = 1.0 + self.lean * rank
        return Answer(weights / weights.sum(), state)


@dataclass(frozen=True)
class Ordered(Fair):
    """Favours whoever came first."""

    def answer(self, facts: Facts, state: Numbers) -> Answer:
        return Answer(1.0 / np.arange(1.0, facts.count + 1.0))


@dataclass(frozen=True)
class Tied(Fair):
    """Order of arrival decides between equal losses."""

    def answer(self, facts: Facts, state: Numbers) -> Answer:
        weights = np.ones(facts.count)
        weights[int(facts.need_losses().argmax())] = 2.0
        return Answer(weights)


@dataclass(frozen=True)
class Forgetful(Fair):
    """Keeps what it should have returned."""

    calls: ClassVar[list[int]] = []

    def answer(self, facts: Facts, state: Numbers) -> Answer:
        self.calls.append(facts.round)
        return Answer(np.full(facts.count, float(len(self.calls))))


@dataclass(frozen=True)
class Meddling(Fair):
    """Works in the arrays it was shown."""

    def answer(self, facts: Facts, state: Numbers) -> Answer:
        losses = facts.need_losses()
        losses += 1.0
        return Answer(np.ones(facts.count))


@dataclass(frozen=True)
class Overwriting(Fair):
    """Counts in the state that is passed in."""

    def initial_state(self) -> Numbers:
        return {"rounds": 0}

    def answer(self, facts: Facts, state: Numbers) -> Answer:
        state["rounds"] += 1
        return Answer(np.ones(facts.count), state)


@dataclass(frozen=True)
class Dividing(Fair):
    """Divides by a loss."""

    def answer(self, facts: Facts, state: Numbers) -> Answer:
        with np.errstate(all="ignore"):
            return Answer(1.0 / facts.need_losses())


@dataclass(frozen=True)
class Keyed(Fair):
    """A dict with numbers as keys, which JSON makes strings."""

    def initial_state(self) -> Numbers:
        return {"seen": {}}

    def answer(self, facts: Facts, state: Numbers) -> Answer:
        return Answer(np.ones(facts.count), {"seen": dict.fromkeys(range(facts.count), True)})


@dataclass(frozen=True)
class Arrays(Fair):
    """An array in the state."""

    def initial_state(self) -> Numbers:
        return {"losses": None}

    def answer(self, facts: Facts, state: Numbers) -> Answer:
        return Answer(np.ones(facts.count), {"losses": facts.clients and set(facts.clients)})


@dataclass(frozen=True)
class Unscaled(Fair):
    """Its answer goes by the updates' lengths, and it says otherwise."""

    @property
    def needs(self) -> frozenset[Need]:
        return frozenset({"norms"})

    def answer(self, facts: Facts, state: Numbers) -> Answer:
        return Answer(1.0 / np.maximum(facts.need_norms(), 1e-300))


@dataclass(frozen=True)
class Peeking(Fair):
    """Looks at sample counts it did not ask for."""

    def answer(self, facts: Facts, state: Numbers) -> Answer:
        sizes = np.ones(facts.count) if facts.sizes is None else facts.sizes
        return Answer(sizes)


@dataclass(frozen=True)
class Short(Fair):
    """One number for all."""

    def answer(self, facts: Facts, state: Numbers) -> Answer:
        return Answer(np.ones(1))


@dataclass(frozen=True)
class Backwards(Fair):
    """Climbs."""

    def answer(self, facts: Facts, state: Numbers) -> Answer:
        return Answer(-np.ones(facts.count))


@dataclass(frozen=True)
class Silent(Fair):
    summary = ""


@dataclass(frozen=True)
class Misnamed(Fair):
    name: ClassVar[str] = "nobody registered this"


BROKEN: list[tuple[type[Rule], str]] = [
    (Ordered, "does not depend on the order of the clients, but in another order, coefficients change in round 1"),
    (Tied, "breaks ties by client, not by order, but "),
    (Forgetful, "is pure, but the same call gives another d"),
    (Meddling, "is pure, but it changes the losses that are passed in"),
    (Overwriting, "is pure, but it changes the state that is passed in"),
    (Dividing, "finite input gives finite output, but zero losses"),
    (Keyed, "has a state of plain numbers, strings, lists and dicts, but JSON makes "),
    (Arrays, "but its state is not JSON: Object of type set is not JSON serializable"),
    (Unscaled, "has degree 1, but updates times 1e-06 move d by another power"),
    (Peeking, "looks only at the facts it needs, but others change its answer"),
    (Short, r"answers with one coefficient for each client, but their shape is \(1,\) for 5 clients"),
    (Backwards, "moves a single client along its update, but the coefficient is -1.0"),
    (Silent, "is described for people and machines, but its summary is empty; it must say what the rule does"),
    (Misnamed, "its name and options do not make it again: rule.name = 'nobody registered this' is unknown"),
]


@pytest.mark.parametrize(("broken", "told"), BROKEN, ids=[broken.__name__ for broken, _ in BROKEN])
def test_a_broken_rule_is_caught(broken: type[Rule], told: str) -> None:
    with pytest.raises(AssertionError, match=told) as caught:
        check_rule(broken)
    assert str(caught.value).startswith(f"{broken.name}: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("lean", [0.0, 0.5])
def test_a_sound_rule_of_ones_own_passes(lean: float) -> None:
    check_rule(Fair(lean))


def test_a_class_is_made_with_its_defaults() -> None:
    check_rule(Fair)


def test_whatever_a_rule_raises_is_told_with_the_property() -> None:
    @dataclass(frozen=True)
    class Raising(Fair):
        def answer(self, facts: Facts, state: Numbers) -> Answer:
            raise ZeroDivisionError("none")

    with pytest.raises(AssertionError, match=r"answers with one coefficient for each client, but it raised ZeroDiv"):
        check_rule(Raising)


def test_properties_are_told_apart() -> None:
    checks: list[Any] = list(PROPERTIES.values())
    assert len(set(checks)) == len(PROPERTIES)
