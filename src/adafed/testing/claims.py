"""A contract: named properties, each a function that raises AssertionError with a sentence."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

T = TypeVar("T")


def check(one: T, properties: Mapping[str, Callable[[T], None]]) -> None:
    """Raise AssertionError, with a sentence that names the property, unless `one` has all of them."""
    for name, property_ in properties.items():
        try:
            property_(one)
        except AssertionError:
            raise
        except Exception as error:
            raise AssertionError(f"{one}: {name}, but it raised {error!r}") from error


def claim(one: object, told: str, holds: object, otherwise: str) -> None:
    if not holds:
        raise AssertionError(f"{one}: {told}, but {otherwise}")
