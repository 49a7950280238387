"""What a server rule is: K small facts in, K coefficients out; and the rules by name.

A rule never sees the updates. It sees the facts below, among them (if it asks) the Gram matrix of the updates, and
answers with coefficients y; the direction is d = sum of y_k g_k and the new model is theta - eta_t d.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar

import numpy as np
import numpy.typing as npt

from adafed.errors import AdafedError
from adafed.registry import Named, Registry, described, options

Made = TypeVar("Made")
Vector = npt.NDArray[np.float64]
Matrix = npt.NDArray[np.float64]
Need = str
"""One of "losses", "sizes", "accuracies", "local_lr", "norms", "gram"."""
EVER = 2**53  # rounds
MOST_CLIENTS = 10**7  # of a federation; rules may keep a number for each
Numbers = dict[str, Any]
"""A rule's state: numbers, strings, lists and dicts only, so that it goes through JSON unchanged."""


@dataclass(frozen=True)
class Facts:
    """What a rule may know of one round. Facts that a rule does not need may be None.

    Attributes:
        clients: The cohort and, where the server remembers the federation, those it remembers behind them: a rule
            treats all alike, unless it asks for `ages`.
        round: Counted from 1.
        losses: What each client told, by default of the model it received (`server.loss`).
        sizes: Sample counts.
        accuracies: Training accuracies, from 0 to 1.
        local_lr: The clients' learning rate.
        federation: How many clients there are in all.
        norms: The updates' lengths ||g_k||.
        gram: M_jk = g_j . g_k, with a row for each of the clients, followed by one for each further vector (`memory`).
        memory: The further vectors, as pairs of client and round, for rules that look back themselves.
        ages: Rounds since each client was heard; None where nobody is remembered.
        last: The coefficients that the clients had last, 0 for new ones: a guess at this round's.
    """

    clients: tuple[str, ...]
    round: int = 1
    losses: Vector | None = None
    sizes: Vector | None = None
    accuracies: Vector | None = None
    local_lr: float | None = None
    federation: int | None = None
    norms: Vector | None = None
    gram: Matrix | None = None
    memory: tuple[tuple[str, int], ...] = ()
    ages: Vector | None = None
    last: Vector | None = None

    @property
    def count(self) -> int:
        return len(self.clients)

    @property
    def fresh(self) -> int:
        """How many of the clients answered in this round; they come first."""
        return self.count if self.ages is None else int((self.ages == 0).sum())

    def order_by_loss(self) -> list[int]:
        """The cohort in ascending order of loss; ties by client id, so that the order of arrival never matters."""
        losses = self.need_losses()
        return sorted(range(self.count), key=lambda k: (losses[k], client_key(self.clients[k])))

    def need_losses(self) -> Vector:
        return _present(self.losses, "losses")

    def need_sizes(self) -> Vector:
        return _present(self.sizes, "sizes")

    def need_accuracies(self) -> Vector:
        return _present(self.accuracies, "accuracies")

    def need_norms(self) -> Vector:
        return _present(self.norms, "norms")

    def need_gram(self) -> Matrix:
        return _present(self.gram, "gram")


def altered(one: Made, **fields: Any) -> Made:
    """As `dataclasses.replace`, of a value that checks nothing when it is made: that looks at every field first, and a
    round of guards would spend a good part of its time in it."""
    made = object.__new__(type(one))
    made.__dict__.update(one.__dict__, **fields)
    return made


def _present(value: npt.NDArray[np.float64] | None, name: str) -> npt.NDArray[np.float64]:
    if value is None:
        raise AdafedError(f"this rule needs {name} of every client and got none")
    return value


def client_key(client: str) -> tuple[int, int, str]:
    """Sorts ids that are numbers by value, and before all others; "1" and "01" are two."""
    return (0, int(client), client) if client.isdecimal() and len(client) < 4000 else (1, 0, client)


@dataclass(frozen=True)
class Answer:
    """A rule's answer.

    Attributes:
        coefficients: One for each row it was shown.
        state: Its next state: numbers, strings, lists and dicts.
        notes: For the diagnostics.
    """

    coefficients: Vector
    state: Numbers = field(default_factory=dict)
    notes: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Rule(Named, ABC):
    """Base of all rules: a frozen dataclass whose fields are its options.

    Attributes:
        name: What it is registered under, or `module:attribute`.
        summary: The line that `adafed list` prints.
        source: Who published it.
        degree: The power of c by which d grows when every update is multiplied by c (None: no such law).
        presets: Named sets of options.
        grid: The values the paper searched, for `adafed tune`.
    """

    degree: ClassVar[int | None] = 1
    presets: ClassVar[dict[str, dict[str, Any]]] = {}
    grid: ClassVar[dict[str, tuple[float, ...]]] = {}

    @property
    @abstractmethod
    def needs(self) -> frozenset[Need]:
        """The facts without which the rule cannot answer."""

    @property
    def remembers(self) -> int:
        """For how many rounds the caller must keep the clients' updates (EVER: for all); those of absent clients come
        back as further rows, with a coefficient each in the answer."""
        return 0

    @property
    def previous(self) -> bool:
        """Whether the last updates of the clients of this round come back as well."""
        return False

    @property
    def everyone(self) -> bool:
        """Whether it is best shown the whole federation: what `memory.rounds = "auto"` asks where clients are drawn."""
        return False

    def initial_state(self) -> Numbers:
        return {}

    @abstractmethod
    def answer(self, facts: Facts, state: Numbers) -> Answer:
        """The coefficients for this round. Pure: the same facts and state give the same answer."""

    def options(self) -> dict[str, Any]:
        return options(self)

    def __str__(self) -> str:
        return described(self)


RULES: Registry[type[Rule]] = Registry("rule", "rule", Rule)
register = RULES.register


def rules() -> tuple[str, ...]:
    """The names of all registered rules.

    Returns:
        As `adafed list rules` prints them.

    Examples:
        >>> import adafed
        >>> "adafed" in adafed.rules()
        True
    """
    return RULES.names()


def rule(name: str, *, preset: str | None = None, **options: Any) -> Rule:
    """The rule called `name`, with its options.

    Args:
        name: One of `rules()`, or `module:attribute` for your own.
        preset: A named set of options, which `options` may override; `adafed` has "paper", the rule as printed; the
            loss that Algorithm 1 tells it is `server.loss = "after"`, or what you hand over as `losses`.
        **options: Its options, as in `gamma=5.0`.

    Returns:
        A rule, for `aggregate` and `FairStrategy`.

    Raises:
        AdafedError: For an unknown name, option or preset, or a value out of its range.

    Examples:
        >>> import adafed
        >>> print(adafed.rule("adafed", gamma=5.0))
        adafed(gamma=5.0)
        >>> adafed.rule("adafed", preset="paper").hull
        'affine'
        >>> adafed.rule("adafed", gamma=-1.0)
        Traceback (most recent call last):
        ...
        adafed.errors.AdafedError: rule.gamma is -1.0; it must be a finite number at least 0
    """
    if preset is not None:
        presets = RULES.entry(name).presets
        if preset not in presets:
            known = ", ".join(map(repr, presets)) or "none"
            raise AdafedError(f"rule.preset = {preset!r} is unknown; rule.name = {name!r} has {known}")
        options = presets[preset] | options
    return RULES.make(name, **options)
