"""An engine some of whose clients lie: their replies are changed on the way to the server, and nothing else is.

What is random follows from the run's seed and the round, so the number of workers changes no bit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from adafed.attacks import Lie, Sent
from adafed.client_rules.base import Orders, Told
from adafed.imported import maybe_own
from adafed.randomness import round_generator
from adafed.rounds.loop import Asked, Collected, Engine, Wanted
from adafed.rounds.records import Scores
from adafed.rounds.replies import ACCURACY, LOSSES, Reply
from adafed.server.state import ServerState

TOLD = 121  # the stream of random numbers that lies are made of


class LyingEngine:
    """`engine`, with the lies of the clients in `liars`."""

    def __init__(self, engine: Engine, lies: tuple[Lie, ...], liars: frozenset[int], seed: int) -> None:
        self.engine = engine
        self.lies = lies
        self.liars = liars
        self.seed = seed
        self.processes = engine.processes
        self.at_once = engine.at_once
        self.round = 0

    def begin(self, asked: Asked, state: ServerState, broadcast: torch.Tensor) -> None:
        self.round = asked.round
        self.engine.begin(asked, state, broadcast)

    def replies(self) -> Collected:
        found = self.engine.replies()
        lying = [k for k, reply in enumerate(found.replies) if reply.client in self.liars]
        if not lying:
            return found
        sent = [_sent(found.replies[k]) for k in lying]
        honest = [reply.update for reply in found.replies if reply.client not in self.liars]
        random = round_generator(self.seed, self.round, TOLD)
        for lie in self.lies:
            with maybe_own("attack.use", lie):
                lie.tell(sent, honest, random)  # updates are written to where they lie, so the matrix has them too
        told = {k: _told(found.replies[k], one) for k, one in zip(lying, sent, strict=True)}
        return Collected([told.get(k, one) for k, one in enumerate(found.replies)], found.missing, found.updates)

    def measure(self, wanted: Sequence[Wanted], state: ServerState) -> list[list[Scores]]:
        return self.engine.measure(wanted, state)

    def tried(self, wanted: Wanted, states: Sequence[ServerState]) -> list[list[Scores]]:
        return self.engine.tried(wanted, states)

    def ask(
        self, rule: str, clients: Sequence[int], orders: Sequence[Mapping[str, Orders]], state: ServerState
    ) -> list[tuple[int, Told]]:
        return self.engine.ask(rule, clients, orders, state)


def _sent(reply: Reply) -> Sent:
    losses = {kind: reply.numbers[key] for kind, key in LOSSES.items() if key in reply.numbers}
    return Sent(reply.update, reply.samples, losses, reply.numbers.get(ACCURACY))


def _told(reply: Reply, sent: Sent) -> Reply:
    numbers = {**reply.numbers, **{LOSSES[kind]: loss for kind, loss in sent.losses.items()}}
    if sent.accuracy is not None:
        numbers[ACCURACY] = sent.accuracy
    return reply._replace(samples=sent.samples, numbers=numbers)
