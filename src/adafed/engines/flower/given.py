"""What `FairStrategy` is given, checked when it is made: a mistake is told before any client has trained."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Integral, Real
from typing import Any, TypeVar, cast

from adafed.errors import AdafedError
from adafed.server.optimizers import ServerOptimizer, optimizer
from adafed.server.schedules import Schedule, schedule
from adafed.server_rules import Rule, rule

Part = TypeVar("Part")


def whole(key: str, value: Any, least: int) -> None:
    """A whole number."""
    if not _is(value, Integral) or value < least:
        raise AdafedError(f"{key} is {value!r}; it must be a whole number, at least {least}")


def above_zero(key: str, value: Any, most: float | None = None) -> None:
    """A number."""
    if not _is(value, Real) or not 0 < value < float("inf") or (most is not None and value > most):
        limit = "" if most is None else f" and at most {most:g}"
        raise AdafedError(f"{key} is {value!r}; it must be a number above 0{limit}")


def rule_of(given: str | Rule) -> Rule:
    return _made("rule", given, rule, Rule)


def optimizer_of(given: str | ServerOptimizer) -> ServerOptimizer:
    return _made("server_optimizer", given, optimizer, ServerOptimizer)


def schedule_of(given: str | Schedule) -> Schedule:
    return _made("server_schedule", given, schedule, Schedule)


def _is(value: object, kind: type) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)


def _made(key: str, given: str | Part, maker: Callable[[str], Part], kind: Any) -> Part:
    """By its name, or as it is."""
    found: Any = maker(given) if isinstance(given, str) else given
    if not isinstance(found, kind):
        raise AdafedError(f"{key} is {given!r}; give a name, or what adafed.{maker.__name__} makes of one")
    return cast("Part", found)
