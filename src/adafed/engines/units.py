"""Units of work for clients, and what comes back: what an engine hands to a station, wherever that is.

All of it is numbers, strings and lists, so that it goes through JSON; vectors of the model's length lie in rows beside.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from adafed.client_rules.base import Orders, Told
from adafed.rounds.loop import Part
from adafed.training.local import Assignment
from adafed.training.measuring import Measured

RuleOrders = Mapping[str, Orders]
"""What the server tells one client, by client rule; empty where it tells nothing."""


class KeptFile(NamedTuple):
    """Where what a client keeps is read from (None: it has kept nothing yet) and written to."""

    source: str | None
    target: str | None = None


@dataclass(frozen=True)
class TrainUnit:
    """Clients trained in one go: one, or several of equal shape together. `rows` are theirs in the updates."""

    work: tuple[Assignment, ...]
    rows: tuple[int, ...]
    before: bool
    after: bool
    kept: tuple[KeptFile, ...] = ()
    orders: tuple[RuleOrders, ...] = ()


@dataclass(frozen=True)
class MeasureUnit:
    """Clients whose samples of one part are measured in one go, with the global model or, `personal`, each with its
    own, which is found among what it keeps; `last`: after a last time to personalise, whose result goes to the target
    of `kept`."""

    clients: tuple[int, ...]
    part: Part
    personal: bool = False
    kept: tuple[KeptFile, ...] = ()
    orders: tuple[RuleOrders, ...] = ()
    last: bool = False


@dataclass(frozen=True)
class AskUnit:
    """A client that answers a client rule's question, with the global model."""

    client: int
    rule: str
    orders: RuleOrders


class Report(NamedTuple):
    """What a client tells the server beside its update; `told` is by client rule."""

    client: int
    samples: int
    steps: int
    running: float  # mean of the loss over all local steps
    before: Measured | None
    after: Measured | None
    told: dict[str, Told] = {}
    held_out: float | None = None  # the loss of the received model on the client's validation part
