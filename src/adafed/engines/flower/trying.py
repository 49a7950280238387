"""Models that a step may lead to, shown to the clients of an app of the user's own: one phase, for a safe step.

The message is a query named `losses`, so a client that does not know it answers with an error rather than with the
loss of something else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from logging import getLogger

from flwr.app import ArrayRecord, MessageType
from flwr.serverapp import Grid

from adafed.engines.flower.arrays import Arrays
from adafed.engines.flower.conversation import Conversation
from adafed.engines.flower.replies import client_of, node_of, numbers_of, suffixes
from adafed.rounds.replies import LOSS
from adafed.server.state import ServerState

log = getLogger("flwr")
ACTION = "losses"
AT_ONCE = 3  # models in a message: a phase costs more than what goes along in it


def numbered(model: int) -> str:
    """How a model's record and its numbers are told from the first one's."""
    return f":{model}" if model else ""


def models(records: Mapping[str, ArrayRecord]) -> Iterator[ArrayRecord]:
    """Those of a message, in order."""
    k = 0
    while f"arrays{numbered(k)}" in records:
        yield records[f"arrays{numbered(k)}"]
        k += 1


def telling(
    grid: Grid, conversation: Conversation, arrays: Arrays, round: int
) -> Callable[[Sequence[int], Sequence[ServerState]], list[dict[int, float]]]:
    """Asks clients for their training losses at some models, and has what each of them said."""

    def tell(clients: Sequence[int], states: Sequence[ServerState]) -> list[dict[int, float]]:
        configs: dict[int, dict[str, int]] = {node: {} for node in sorted(conversation.held(clients))}
        records = {f"arrays{numbered(k)}": arrays.record(state.parameters) for k, state in enumerate(states)}
        messages = conversation.messages(f"{MessageType.QUERY}.{ACTION}", records, configs, round)
        found: list[dict[int, float]] = [{} for _ in states]
        for message in grid.send_and_receive(messages, timeout=conversation.timeout):
            node = node_of(message, conversation.sent())
            if message.has_error():
                log.warning("round %d: node %d did not tell its losses: %s", round, node, message.error.reason)
                continue
            for suffix in suffixes(message):
                client, metrics = client_of(message, suffix), message.content.metric_records.get(f"metrics{suffix}")
                if client is None or metrics is None or client not in clients:
                    continue
                if conversation.roster.holders.get(client) == node:
                    numbers = numbers_of(metrics)
                    for k, losses in enumerate(found):
                        if LOSS + numbered(k) in numbers:
                            losses[client] = numbers[LOSS + numbered(k)]
        return [{client: losses[client] for client in clients if client in losses} for losses in found]

    return tell
