"""Which node holds which client. Node ids are random, so a node is asked once for the ids of its clients.

A client's first word counts: the node that holds it keeps it while connected, and the sample count it registered with
stays the most it may claim.
"""

from __future__ import annotations

from collections.abc import Iterable
from logging import getLogger

from flwr.app import Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid

from adafed.engines.flower.replies import CLIENT, SAMPLES, node_of
from adafed.rounds.replies import Reply

log = getLogger("flwr")
TRIES = 3  # a node may fail for a moment; an app that has no answer is not asked for ever


class Roster:
    """`holders[client]` is a connected node; `samples[client]` outlives the node."""

    def __init__(self, most: int | None = None) -> None:
        self.holders: dict[int, int] = {}
        self.samples: dict[int, int] = {}
        self.most = most
        self._met: set[int] = set()
        self._tries: dict[int, int] = {}

    def connected(self, nodes: Iterable[int]) -> None:
        """Forget who holds what of nodes that have gone."""
        here = set(nodes)
        self.holders = {client: node for client, node in self.holders.items() if node in here}
        self._met &= here

    def strangers(self, nodes: Iterable[int]) -> list[int]:
        """Nodes that have not said what they hold, unless they were asked often enough."""
        return sorted(node for node in set(nodes) - self._met if self._tries.get(node, 0) < TRIES)

    def meet(self, grid: Grid, nodes: Iterable[int], timeout: float) -> None:
        """The handshake: ask nodes that nobody has asked yet which clients they hold, and with how many samples."""
        new = self.strangers(nodes)
        if not new:
            return
        self._tries |= {node: self._tries.get(node, 0) + 1 for node in new}
        messages = [Message(RecordDict(), node, MessageType.QUERY) for node in new]
        claims: dict[int, list[tuple[int, int]]] = {}
        for reply in list(grid.send_and_receive(messages, timeout=timeout)):
            node = node_of(reply, {one.metadata.message_id: one.metadata.dst_node_id for one in messages})
            if reply.has_error():
                log.warning("node %d did not say which clients it holds: %s", node, reply.error.reason)
                continue
            self._met.add(node)
            for client, samples in _claimed(reply):
                claims.setdefault(client, []).append((node, samples))
        for client, found in sorted(claims.items()):
            self._register(client, found)

    def learn(self, replies: Iterable[Reply]) -> None:
        """Without a handshake, what clients say in their first replies counts."""
        for reply in replies:
            self.holders.setdefault(reply.client, reply.node)
            self.samples.setdefault(reply.client, reply.samples)

    def held(self, node: int) -> list[int]:
        return sorted(client for client, holder in self.holders.items() if holder == node)

    def _register(self, client: int, found: list[tuple[int, int]]) -> None:
        if client in self.holders or len(found) > 1:
            nodes = ", ".join(str(node) for node, _ in sorted(found))
            holder = f"node {self.holders[client]} holds" if client in self.holders else "only one node may hold"
            log.warning("client %d is claimed by node %s; %s it, so the claim is refused", client, nodes, holder)
            return
        node, samples = found[0]
        if samples < 1 or (self.most is not None and samples > self.most):
            allowed = "at least 1" if samples < 1 else f"at most {self.most}"
            log.warning("client %d of node %d registers with %d samples; %s is allowed", client, node, samples, allowed)
            return
        self.holders[client] = node
        self.samples.setdefault(client, samples)


def _claimed(reply: Message) -> list[tuple[int, int]]:
    metrics = reply.content.metric_records.get("metrics", MetricRecord())
    clients, samples = metrics.get(CLIENT, []), metrics.get(SAMPLES, [])
    clients = clients if isinstance(clients, list) else [clients]
    samples = samples if isinstance(samples, list) else [samples]
    pairs = zip(clients, samples, strict=False)
    return [(c, s) for c, s in pairs if isinstance(c, int) and c >= 0 and isinstance(s, int)]
