"""What a lie is: it changes what lying clients send, between their training and the server.

All liars of a round are told at once, so that they can collude. What they send is theirs to write to: `update` is the
row the server will read.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch

from adafed.errors import AdafedError
from adafed.registry import Named, Registry, described, options
from adafed.server_rules.base import client_key

LIARS = 120  # the stream of random numbers that says who lies


@dataclass
class Sent:
    """What one client is about to send; `losses` are by kind: before training, after it, over it."""

    update: torch.Tensor
    samples: int
    losses: dict[str, float]
    accuracy: float | None


@dataclass(frozen=True)
class Lie(Named, ABC):
    """Base of all lies: a frozen dataclass whose fields are its options. `summary` is a line for lists."""

    in_data: ClassVar[bool] = False  # told to the client's own training data, before it trains

    @abstractmethod
    def tell(self, liars: Sequence[Sent], honest: Sequence[torch.Tensor], random: np.random.Generator) -> None:
        """Change what the liars of a round send. `honest` are the others' updates, which are not to be written to."""

    def options(self) -> dict[str, Any]:
        return options(self)

    def __str__(self) -> str:
        return described(self)


LIES: Registry[type[Lie]] = Registry("lie", base=Lie, name_key="attack.use")


def lies_from(entries: Sequence[tuple[str, dict[str, Any]]]) -> tuple[Lie, ...]:
    """Lies by name, each with its options, as a configuration has them."""
    return tuple(LIES.make(name, **given) for name, given in entries)


def liars(ids: Sequence[str], named: Sequence[str] | None, share: float, seed: int) -> frozenset[int]:
    """Who lies, as positions among the clients: those that are named, or a share of all, drawn once. A share is of
    one at the least, and leaves one."""
    if named is not None:
        for client in named:
            if client not in ids:
                raise AdafedError(f"attack.clients has {client!r}; the clients are {_some(ids)}")
        return frozenset(ids.index(client) for client in named)
    count = max(1, min(round(share * len(ids)), len(ids) - 1 if share < 1.0 else len(ids)))
    order = sorted(range(len(ids)), key=lambda k: client_key(ids[k]))  # whoever asks may have them in another order
    drawn = np.random.default_rng([seed, 0, LIARS]).permutation(len(ids))[:count]
    return frozenset(order[k] for k in drawn.tolist())


def _some(ids: Sequence[str]) -> str:
    return ", ".join(ids) if len(ids) <= 10 else f"{', '.join(ids[:5])} and so on, {len(ids)} in all"
