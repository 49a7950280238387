"""How the server's rate eta_t goes over the rounds t = 1, 2, ...; the convergence theorems ask for certain ones."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from math import sqrt
from typing import Any, ClassVar

from adafed.registry import Named, Registry, at_least


class Schedule(Named, ABC):
    """A factor for each round; the rate is the base rate times it."""

    @abstractmethod
    def __call__(self, round: int) -> float:
        """Of round t = 1, 2, ..."""


SCHEDULES: Registry[type[Schedule]] = Registry("rate schedule", "server.schedule", Schedule)


def schedules() -> tuple[str, ...]:
    """The names of all rate schedules.

    Returns:
        As `adafed list schedules` prints them.
    """
    return SCHEDULES.names()


def schedule(name: str, **options: Any) -> Schedule:
    """The rate schedule called `name`: a factor of the server's rate for each round.

    Args:
        name: One of `schedules()`, or `module:attribute` for your own.
        **options: Its options, as in `after=10.0`.

    Returns:
        A function of the round, counted from 1.

    Raises:
        AdafedError: For an unknown name or option, or a value out of its range.

    Examples:
        >>> import adafed
        >>> [adafed.schedule("1/t")(t) for t in (1, 2, 4)]
        [1.0, 0.5, 0.25]
    """
    return SCHEDULES.make(name, **options)


@SCHEDULES.register("constant")
@dataclass(frozen=True)
class Constant(Schedule):
    """eta_t is the base rate."""

    summary: ClassVar[str] = "the same rate in every round"

    def __call__(self, round: int) -> float:
        return 1.0


@SCHEDULES.register("1/t")
@dataclass(frozen=True)
class Harmonic(Schedule):
    """sum eta_t diverges and sum eta_t^2 converges: what Theorem 5 (e = 1, GD) asks for.

    Attributes:
        after: Delays the decay: the rate is halved after so many rounds.
    """

    summary: ClassVar[str] = "1/t, or 1/(1 + (t-1)/after): the rate of the theorem on e = 1 GD"
    after: float = 1.0

    def __post_init__(self) -> None:
        at_least("server.schedule.after", self.after, 0.0, strictly=True)

    def __call__(self, round: int) -> float:
        return 1.0 / (1.0 + (round - 1) / self.after)


@SCHEDULES.register("1/sqrt(t)")
@dataclass(frozen=True)
class InverseRoot(Schedule):
    """eta_t -> 0 with a diverging sum: what the theorems on e = 1 SGD and e > 1 GD ask for.

    Attributes:
        after: Delays the decay: the rate is halved after three times so many rounds.
    """

    summary: ClassVar[str] = "1/sqrt(t): the rate of the theorems on e = 1 SGD and e > 1 GD"
    after: float = 1.0

    def __post_init__(self) -> None:
        at_least("server.schedule.after", self.after, 0.0, strictly=True)

    def __call__(self, round: int) -> float:
        return 1.0 / sqrt(1.0 + (round - 1) / self.after)


@SCHEDULES.register("step")
@dataclass(frozen=True)
class Step(Schedule):
    """Multiplied by `factor` every `every` rounds; FedMGDA+'s authors used 0.89 every 100.

    Attributes:
        factor: What the rate is multiplied with.
        every: After how many rounds.
    """

    summary: ClassVar[str] = "multiplied by factor every so many rounds"
    factor: float = 0.89
    every: int = 100

    def __post_init__(self) -> None:
        at_least("server.schedule.factor", self.factor, 0.0, strictly=True)
        at_least("server.schedule.every", self.every, 1)

    def __call__(self, round: int) -> float:
        return float(self.factor ** ((round - 1) // self.every))
