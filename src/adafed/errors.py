"""The one exception a user's mistake raises: a sentence that names the key, the value and what would be right."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType


class AdafedError(ValueError):
    """Bad input, told in one sentence: the key, the value, what would be right. The command line prints it without a
    traceback and exits with 2."""


def quoted(names: Iterable[str]) -> str:
    """Names that may have commas in them, as methods' have, one told from the other."""
    return ", ".join(map(repr, names)) or "none"


class NoClientLeft(AdafedError):
    """Every client of a round was dropped: the round can be skipped, the model is as it was. `dropped` are the reasons
    by client, where they are known."""

    dropped: Mapping[str, str] = MappingProxyType({})

    @classmethod
    def of(cls, dropped: Mapping[str, str]) -> NoClientLeft:
        told = "; ".join(f"client {client}: {why}" for client, why in dropped.items())
        error = cls(f"no client is left to aggregate: {told}")
        error.dropped = dict(dropped)
        return error


class OutOfRange(NoClientLeft):
    """The direction has numbers that the updates' type cannot hold, or cannot be found: the round can be skipped."""
