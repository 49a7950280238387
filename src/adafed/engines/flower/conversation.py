"""The server's talk with the nodes: who is connected, who is asked, and who has not answered."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from logging import getLogger
from typing import Any

import torch
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid

from adafed.engines.flower.arrays import Arrays
from adafed.engines.flower.replies import Limits, Screened, client_of, node_of, numbers_of, screened, suffixes
from adafed.engines.flower.roster import Roster
from adafed.rounds.cohort import Cohort
from adafed.rounds.round import DID_NOT_ANSWER

log = getLogger("flwr")
POLL = 3.0  # seconds between looks at who is connected


class Conversation:
    """`asked` are the clients of each node in the round under way."""

    def __init__(self, min_available_nodes: int, most_samples: int | None = None) -> None:
        self.min_available_nodes = min_available_nodes
        self.roster = Roster(most_samples)
        self.timeout = 3600.0
        self.asked: dict[int, list[int]] = {}
        self._messages: list[Message] = []  # of the phase under way
        self._begun = False

    def nodes(self, grid: Grid) -> list[int]:
        """Who is connected. The run begins with `min_available_nodes`; later, those that are left carry on."""
        enough = 1 if self._begun else self.min_available_nodes
        end = time.monotonic() + self.timeout
        while len(nodes := sorted(grid.get_node_ids())) < enough and (not self._begun or time.monotonic() < end):
            log.info("waiting for %d nodes, %d are connected", enough, len(nodes))
            time.sleep(POLL)
        self._begun = True
        self.roster.connected(nodes)
        return nodes

    def held(self, clients: Iterable[int]) -> dict[int, list[int]]:
        """These clients by the nodes that hold them, where a connected one does."""
        found: dict[int, list[int]] = {}
        for client in clients:
            if client in self.roster.holders:
                found.setdefault(self.roster.holders[client], []).append(client)
        return found

    def messages(
        self, kind: str, records: Mapping[str, Any], configs: Mapping[int, Mapping[str, Any]], round: int
    ) -> list[Message]:
        """One for each node of `configs`, with its config beside the records that all get."""
        self._messages = [
            Message(
                RecordDict({**records, "config": ConfigRecord({**config, "server-round": round})}),
                node,
                kind,
                group_id=str(round),
            )
            for node, config in configs.items()
        ]
        return self._messages

    def sent(self) -> dict[str, int]:
        """Sending gives a message its id."""
        return {message.metadata.message_id: message.metadata.dst_node_id for message in self._messages}

    def heard(
        self,
        messages: Iterable[Message],
        arrays: Arrays,
        received: torch.Tensor,
        needed: Iterable[str],
        cohort: Cohort | None,
        vectors: tuple[str, ...] = (),
    ) -> Screened:
        """The replies of use, and why others are not. Without a cohort, whoever is connected may answer."""
        asked = None if cohort is None else frozenset(client for held in self.asked.values() for client in held)
        roster = self.roster
        limits = Limits(roster.holders, roster.samples, roster.most, asked, self.sent(), vectors)
        there = list(messages)
        found = screened(there, arrays, received, limits, needed)
        self._name_the_silent(found, {node_of(message, limits.sent) for message in there}, cohort)
        roster.learn(found.replies)
        return found

    def measured(
        self, messages: Iterable[Message], name_of: Callable[[int], str] = str, *, known_alone: bool
    ) -> dict[int, dict[str, float]]:
        """The numbers of an evaluation, by client; with `known_alone`, of those that a node has registered."""
        there, roster = list(messages), self.roster
        sent, found = self.sent(), {}
        for message in there:
            node = node_of(message, sent)
            if message.has_error():
                held = ", ".join(map(name_of, roster.held(node))) or f"of node {node}"
                log.warning("evaluation: client %s left out: %s", held, message.error.reason)
                continue
            for suffix in suffixes(message):
                client = client_of(message, suffix)
                metrics = message.content.metric_records.get(f"metrics{suffix}")
                holder = None if client is None else roster.holders.get(client, None if known_alone else node)
                if client is None or metrics is None or holder != node:
                    log.warning("evaluation: a reply of node %d left out: it is no client of that node", node)
                    continue
                found[client] = numbers_of(metrics)
        return found

    def _name_the_silent(self, found: Screened, answered: set[int], cohort: Cohort | None) -> None:
        """Who was asked and is missing from the replies: a straggler past the timeout, or a lost node."""
        here = {reply.client for reply in found.replies} | found.refused.keys()
        for node, clients in self.asked.items():
            if node not in answered and not clients:
                found.strangers.append(f"node {node}: no reply within {self.timeout:g} s")
            for client in set(clients) - here:
                found.refused[client] = (
                    "its node's reply does not mention it"
                    if node in answered
                    else f"no reply within {self.timeout:g} s"
                )
        if cohort is not None:
            asked = {client for clients in self.asked.values() for client in clients}
            for client in cohort.answering:
                if client not in asked:
                    found.refused[client] = "no connected node holds it"
            found.refused.update(dict.fromkeys(cohort.lost, DID_NOT_ANSWER))
