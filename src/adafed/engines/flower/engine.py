"""Clients trained and measured on Flower's nodes: the engine that an experiment's loop drives there."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from logging import getLogger

import torch
from flwr.app import Array, ArrayRecord, MessageType
from flwr.serverapp import Grid

from adafed.client_rules.base import Orders, Told
from adafed.engines.flower.conversation import Conversation
from adafed.engines.flower.replies import (
    SAMPLES,
    client_of,
    node_of,
    suffixes,
    told_of,
)
from adafed.engines.flower.trying import AT_ONCE, numbered
from adafed.engines.flower.work import RESTARTED, layout, prefix
from adafed.engines.station import Station
from adafed.rounds.cohort import Cohort
from adafed.rounds.loop import Asked, Collected, Wanted
from adafed.rounds.records import Scores
from adafed.rounds.replies import ACCURACY, LOSS
from adafed.rounds.round import ServerHalf
from adafed.server.state import ServerState

log = getLogger("flwr")


class FlowerEngine:
    """Nodes are asked once which clients they hold. A phase is one message to each node that has something to do."""

    def __init__(self, grid: Grid, station: Station, half: ServerHalf, nodes: int, timeout: float) -> None:
        self.grid = grid
        self.half = half
        self.config = station.config
        self.ids = station.federation.ids
        self.arrays = layout(station)
        self.conversation = Conversation(nodes)
        self.conversation.timeout = timeout
        self.conversation.roster.samples = {c: int(n) for c, n in enumerate(station.federation.train_sizes)}
        self.processes = torch.get_num_threads()
        self.at_once = AT_ONCE
        rules = self.config.parts.client_rules
        self._sent = tuple(f"{rule.name}.{name}" for rule in rules for name in rule.sends)
        self._received = tuple(f"{rule.name}.{name}" for rule in rules for name in rule.receives)
        self._begun: tuple[Asked, ServerState, torch.Tensor] | None = None
        self._orders: dict[int, Mapping[str, Orders]] = {}  # of the last training

    def begin(self, asked: Asked, state: ServerState, broadcast: torch.Tensor) -> None:
        """Nothing is sent yet: a phase that nobody waits for would be lost with a server that is killed."""
        self._begun = asked, state, broadcast
        self._orders = {task.client: task.orders for task in asked.tasks}

    def replies(self) -> Collected:
        assert self._begun is not None
        (asked, state, broadcast), self._begun = self._begun, None
        nodes = self.conversation.nodes(self.grid)
        self.conversation.roster.meet(self.grid, nodes, self.conversation.timeout)
        shares = {task.client: task.share for task in asked.tasks}
        self.conversation.asked = self.conversation.held(shares)
        configs = {
            node: {
                "clients": clients,
                "shares": [shares[client] for client in clients],
                "kept": self._kept(clients, state),
                "orders": [json.dumps(self._orders[client]) for client in clients],
            }
            for node, clients in sorted(self.conversation.asked.items())
        }
        records = {"arrays": self.arrays.record(state.parameters)}
        vectors = torch.split(broadcast[len(state.parameters) :], state.length) if self._received else ()
        if vectors:
            both = zip(self._received, vectors, strict=True)
            records["broadcast"] = ArrayRecord({name: Array(one.numpy()) for name, one in both})
        messages = self.conversation.messages(MessageType.TRAIN, records, configs, asked.round)
        heard = self.conversation.heard(
            self.grid.send_and_receive(messages, timeout=self.conversation.timeout), self.arrays, state.parameters,
            self.half.needed_numbers(), Cohort(tuple(shares), frozenset(), shares), self._sent,
        )  # fmt: skip
        for stranger in heard.strangers:
            log.warning("round %d: left out: %s", asked.round, stranger)
        for reply in heard.replies:
            if reply.number(RESTARTED):
                log.warning("round %d: client %s had lost what it kept", asked.round, self.ids[reply.client])
        updates = torch.stack([reply.update for reply in heard.replies]) if heard.replies else None
        return Collected(heard.replies, heard.refused, updates)

    def measure(self, wanted: Sequence[Wanted], state: ServerState) -> list[list[Scores]]:
        """One phase for all that is wanted."""
        return self._heard(wanted, [state])[0]

    def tried(self, wanted: Wanted, states: Sequence[ServerState]) -> list[list[Scores]]:
        return [scores for (scores,) in self._heard([wanted], states)]

    def _heard(self, wanted: Sequence[Wanted], states: Sequence[ServerState]) -> list[list[list[Scores]]]:
        """For each of the models, for each thing that is wanted. Models beyond the first are numbered."""
        state = states[0]
        nodes = self.conversation.nodes(self.grid)
        self.conversation.roster.meet(self.grid, nodes, self.conversation.timeout)
        everyone = sorted({client for one in wanted for client in one.clients})
        configs = {}
        for node, clients in sorted(self.conversation.held(everyone).items()):
            parts = []
            for one in wanted:
                mine = [client for client in one.clients if client in clients]
                own = self._orders if one.as_trained else dict(zip(one.clients, one.orders, strict=False))
                orders = [own.get(client, {}) for client in mine]
                told = {"part": one.part, "personal": one.personal, "last": one.last}
                parts.append({**told, "clients": mine, "orders": orders})
            configs[node] = {"clients": clients, "kept": self._kept(clients, state), "wanted": json.dumps(parts)}
        records = {f"arrays{numbered(k)}": self.arrays.record(one.parameters) for k, one in enumerate(states)}
        messages = self.conversation.messages(MessageType.EVALUATE, records, configs, state.round)
        replies = self.grid.send_and_receive(messages, timeout=self.conversation.timeout)
        heard = self.conversation.measured(replies, self.ids.__getitem__, known_alone=True)
        for client in sorted(client for client, numbers in heard.items() if numbers.get(RESTARTED)):
            name = self.ids[client]
            log.warning("round %d: client %s had lost what it kept: its own model is not evaluated", state.round, name)
        return [[_scores(one, heard, self.ids, numbered(k)) for one in wanted] for k in range(len(states))]

    def ask(
        self, rule: str, clients: Sequence[int], orders: Sequence[Mapping[str, Orders]], state: ServerState
    ) -> list[tuple[int, Told]]:
        """A phase of its own; who does not answer is left out."""
        own = dict(zip(clients, orders, strict=True))
        configs = {
            node: {"ask": rule, "clients": held, "orders": [json.dumps(own[client]) for client in held]}
            for node, held in sorted(self.conversation.held(clients).items())
        }
        records = {"arrays": self.arrays.record(state.parameters)}
        messages = self.conversation.messages(MessageType.QUERY, records, configs, state.round)
        found: dict[int, Told] = {}
        for message in self.grid.send_and_receive(messages, timeout=self.conversation.timeout):
            if message.has_error():
                log.warning("round %d: a question of %s was not answered: %s", state.round, rule, message.error.reason)
                continue
            node = node_of(message, self.conversation.sent())
            for suffix in suffixes(message):
                client = client_of(message, suffix)
                if client in own and self.conversation.roster.holders.get(client) == node:
                    found[client] = told_of(message, suffix).get(rule, {})
        return [(client, found[client]) for client in clients if client in found]

    def _kept(self, clients: Sequence[int], state: ServerState) -> list[int]:
        """The round in which each client last wrote what it keeps, 0 for never."""
        return [state.kept.get(str(client), 0) for client in clients]


def _scores(wanted: Wanted, heard: Mapping[int, Mapping[str, float]], ids: Sequence[str], number: str) -> list[Scores]:
    """What clients said of one model and part of their data; nonsense is named and left out."""
    before, told, scores = prefix(wanted.part, wanted.personal), (SAMPLES, LOSS, ACCURACY), []
    for client in wanted.clients:
        numbers = heard.get(client, {})
        score = sensible(client, ids[client], *(numbers.get(f"{before}{key}{number}") for key in told))
        scores += [] if score is None else [score]
    return scores


def sensible(
    client: int, name: str, samples: float | None, loss: float | None, accuracy: float | None
) -> Scores | None:
    """Numbers of an evaluation that can be believed."""
    if samples is None:
        return None
    if not (0 <= samples < 2**53 and samples == int(samples)):
        log.warning("evaluation: client %s left out: sample count is %s", name, samples)
        return None
    if samples and not (accuracy is not None and 0 <= accuracy <= 1):
        log.warning("evaluation: client %s left out: accuracy is %s", name, accuracy)
        return None
    known = samples > 0
    return Scores(client, int(samples), loss if known else None, accuracy if known else None)
