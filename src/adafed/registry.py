"""Things known by name and made from checked options: rules, server optimisers, rate schedules.

An entry is a frozen dataclass whose fields are its options. Names and options come from configuration files and from
the command line, so every mistake in them is told in one sentence that lists what there is.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import numpy as np

from adafed.errors import AdafedError

T = TypeVar("T")
_WANTED = {bool: "true or false", int: "a whole number", float: "a number", str: "a string"}


class Registry(Generic[T]):
    """Entries of one kind ("rule", "server optimiser"), by name."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._entries: dict[str, type[T]] = {}

    def register(self, name: str) -> Callable[[type[T]], type[T]]:
        """Class decorator; gives the class its `name`."""

        def add(cls: type[T]) -> type[T]:
            if name in self._entries:
                raise AdafedError(f"a {self.kind} named {name!r} is registered already")
            cls.name = name  # type: ignore[attr-defined]  # a class attribute of every kind that is registered
            self._entries[name] = cls
            return cls

        return add

    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self._entries))

    def entry(self, name: str) -> type[T]:
        if name not in self._entries:
            raise AdafedError(f"no {self.kind} is called {name!r}; there are {', '.join(self.names())}")
        return self._entries[name]

    def make(self, name: str, /, **options: Any) -> T:
        cls = self.entry(name)
        hints = typing.get_type_hints(cls)
        known = {f.metadata.get("key", f.name): f.name for f in dataclasses.fields(cls)}  # type: ignore[arg-type]
        for option in options:
            if option not in known:
                raise AdafedError(f"{name} has no option {option!r}; it has {', '.join(known) or 'none'}")
        return cls(**{known[o]: coerced(f"{name}: {o}", value, hints[known[o]]) for o, value in options.items()})


def coerced(where: str, value: Any, hint: Any) -> Any:
    """`value` as the type `hint` asks for: an integer is a fine float, a string or a bool is not."""
    kinds = typing.get_args(hint) or (hint,)
    if isinstance(value, np.generic):  # a value out of np.arange is as good as any
        value = value.item()
    if value is None and type(None) in kinds:
        return None
    if isinstance(value, bool):
        accepted = bool in kinds
    elif isinstance(value, int):
        accepted = int in kinds or float in kinds
        value = value if int in kinds or not accepted else _real(where, value)
    elif isinstance(value, float):
        accepted = float in kinds
    else:  # Literal types have strings as their arguments; the entry itself checks which of them
        accepted = isinstance(value, str) and not any(kind in (bool, int, float) for kind in kinds)
    if not accepted:
        wanted = " or ".join(_WANTED[kind] for kind in kinds if kind in _WANTED)
        raise AdafedError(f"{where} is {value!r}; it must be {wanted or 'one of ' + ', '.join(map(repr, kinds))}")
    return value


def _real(where: str, value: int) -> float:
    try:
        return float(value)
    except OverflowError:
        raise AdafedError(f"{where} has {len(str(value))} digits; it must be a number below 1e308") from None


def one_of(where: str, value: object, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise AdafedError(f"{where} is {value!r}; it must be one of {', '.join(map(repr, choices))}")


def at_least(where: str, value: float, bound: float, *, strictly: bool = False) -> None:
    if not (value >= bound and value < float("inf")) or (strictly and value == bound):
        relation = "greater than" if strictly else "at least"
        raise AdafedError(f"{where} is {value}; it must be a finite number {relation} {bound:g}")


def below(where: str, value: float, bound: float, *, least: float = 0.0) -> None:
    if not least <= value < bound:
        raise AdafedError(f"{where} is {value}; it must be at least {least:g} and less than {bound:g}")


def options(entry: Any) -> dict[str, Any]:
    """Every option of an entry as it was made, defaults too."""
    return {field.metadata.get("key", field.name): getattr(entry, field.name) for field in dataclasses.fields(entry)}


def described(entry: Any) -> str:
    """The name and the options that differ from their defaults: `adafed(gamma=5.0)`."""
    changed = [
        f"{f.name}={getattr(entry, f.name)}" for f in dataclasses.fields(entry) if getattr(entry, f.name) != f.default
    ]
    return f"{entry.name}({', '.join(changed)})" if changed else str(entry.name)
