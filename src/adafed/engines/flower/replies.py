"""What a client answers, checked: a reply is either of use or refused with the reason, and never reaches a rule raw.

A reply holds `metrics` and either `arrays`, the trained model, or `update`, the difference g_k = theta - theta_k (with
the client's own statistics in the place of BatchNorm's). A node that holds several clients adds `:3` to both keys for
its client 3. What clients' rules tell is JSON in `told`, by rule; what they send is in `vectors`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord

from adafed.client_rules.base import Told
from adafed.engines.flower.arrays import Arrays, numbers_in
from adafed.rounds.replies import Reply
from adafed.rounds.statistics import BAD_STATISTICS
from adafed.server.state_dicts import moved, usable

SAMPLES, CLIENT = "num-examples", "client-id"


@dataclass(frozen=True)
class Screened:
    """`refused` names clients that are known and why; `strangers` holds what came from nobody known."""

    replies: list[Reply]
    refused: dict[int, str] = field(default_factory=dict)
    strangers: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Limits:
    """What a client may say. `holders` tells which node holds a client, `samples` how many it registered with;
    `asked` are the clients of the round, None where whoever is connected may answer; `sent` are the messages' nodes."""

    holders: Mapping[int, int]
    samples: Mapping[int, int]
    most: int | None = None
    asked: frozenset[int] | None = None
    sent: Mapping[str, int] = field(default_factory=dict)
    vectors: tuple[str, ...] = ()  # what clients' rules send beside the update

    def expects(self, client: int) -> bool:
        return self.asked is None or client in self.asked

    def lie(self, client: int, samples: float) -> str | None:
        """A sample count that a weight must not be made of."""
        if not (0 < samples < 2**53 and samples == int(samples)):
            return f"sample count is {samples}"
        if self.most is not None and samples > self.most:
            return f"says {samples:.0f} samples; at most {self.most} are allowed"
        registered = self.samples.get(client)
        if registered is not None and samples > registered:
            return f"says {samples:.0f} samples and registered with {registered}"
        return None


def screened(
    messages: Iterable[Message], arrays: Arrays, received: torch.Tensor, limits: Limits, needed: Iterable[str]
) -> Screened:
    """Replies in ascending order of the clients' own ids, whatever order they came in.

    `needed` are the metrics without which the rule cannot do.
    """
    needed = tuple(needed)
    good: list[Reply] = []
    refused: dict[int, str] = {}
    strangers: list[str] = []
    for message in messages:
        node = node_of(message, limits.sent)
        if message.has_error():
            why = f"error {message.error.code}: {message.error.reason}"
            held = [client for client, holder in limits.holders.items() if holder == node and limits.expects(client)]
            refused |= dict.fromkeys(held, why)
            if not held:
                strangers.append(f"node {node}: {why}")
            continue
        for suffix in suffixes(message):
            answer = _read(message, suffix, node, arrays, received, limits, needed)
            if isinstance(answer, Reply):
                good.append(answer)
            elif answer[0] is None:
                strangers.append(f"node {node}: {answer[1]}")
            else:
                refused[answer[0]] = answer[1]
    claims = Counter(reply.client for reply in good)
    for client in sorted(client for client, count in claims.items() if count > 1):
        nodes = sorted(reply.node for reply in good if reply.client == client)
        refused[client] = f"claimed by {len(nodes)} replies, of nodes {', '.join(map(str, nodes))}"
    kept = [reply for reply in good if reply.client not in refused]
    return Screened(sorted(kept, key=lambda reply: reply.client), refused, strangers)


def node_of(message: Message, sent: Mapping[str, int]) -> int:
    """The node that was asked. An error reply for a lost node comes from the SuperLink, not from the node."""
    return sent.get(message.metadata.reply_to_message_id, message.metadata.src_node_id)


def suffixes(message: Message) -> list[str]:
    """One for each client in a reply; the empty one where a node is a client."""
    found = [key.partition(":") for key in message.content.metric_records]
    return [colon + client for record, colon, client in found if record == "metrics"] or [""]


def client_of(message: Message, suffix: str) -> int | None:
    """The id the client says it has; without one, the number of its node stands for it."""
    metrics = message.content.metric_records.get(f"metrics{suffix}", MetricRecord())
    client = metrics.get(CLIENT, message.metadata.src_node_id)
    return client if isinstance(client, int) and client >= 0 else None


def numbers_of(metrics: MetricRecord) -> dict[str, float]:
    return {key: float(value) for key, value in metrics.items() if isinstance(value, int | float)}


def lacking(asked: str, key: str, numbers: Mapping[str, float]) -> str:
    """A metric that the reply to `asked` has not, beside those it has: an app of the user's own may call it otherwise.
    The names are a stranger's, so not all of any number of them."""
    return f'the reply to {asked} has no "{key}"; it has {", ".join(sorted(numbers))[:200] or "no numbers"}'


def told_of(message: Message, suffix: str) -> dict[str, Told]:
    """What a client's rules tell, by rule; nothing where it is not of that form."""
    text = message.content.config_records.get(f"told{suffix}", ConfigRecord()).get("told", "{}")
    try:
        found = json.loads(text) if isinstance(text, str) else {}
    except (ValueError, RecursionError):
        return {}
    there = found.items() if isinstance(found, dict) else ()
    return {rule: told for rule, told in there if isinstance(told, dict)}


def _read(
    message: Message,
    suffix: str,
    node: int,
    arrays: Arrays,
    received: torch.Tensor,
    limits: Limits,
    needed: tuple[str, ...],
) -> Reply | tuple[int | None, str]:
    content = message.content
    if f"metrics{suffix}" not in content.metric_records:
        return None, "the reply has no metrics"
    client = client_of(message, suffix)
    if client is None:
        return None, f"{CLIENT} is {content.metric_records[f'metrics{suffix}'][CLIENT]!r}, not a whole number"
    holder = limits.holders.get(client)
    if not limits.expects(client):
        return None, f"client {client} was not asked"
    if holder is not None and holder != node:
        return None, f"says it is client {client}, which node {holder} holds"
    numbers = numbers_of(content.metric_records[f"metrics{suffix}"])
    for key in (SAMPLES, *needed):
        if key not in numbers:
            return client, lacking("train", key, numbers)
    lie = limits.lie(client, numbers[SAMPLES])
    if lie is not None:
        return client, lie
    difference = f"update{suffix}" in content.array_records
    record: ArrayRecord | None = content.array_records.get(f"{'update' if difference else 'arrays'}{suffix}")
    if record is None:
        return client, "the reply has no arrays"
    fault = arrays.faulty(record)
    if fault is not None:
        return client, fault
    flat = arrays.flat(record)
    own = flat[: arrays.length]
    update = own if difference else moved(received[: arrays.length], own)
    statistics = flat[arrays.length :]
    if not usable(statistics, received[arrays.length :]):
        return client, BAD_STATISTICS
    vectors = _vectors(content.array_records.get(f"vectors{suffix}", ArrayRecord()), limits.vectors, arrays.length)
    if isinstance(vectors, str):
        return client, vectors
    told = told_of(message, suffix)
    return Reply(client, int(numbers[SAMPLES]), update, statistics, numbers, told, vectors, node)


def _vectors(record: ArrayRecord, wanted: tuple[str, ...], length: int) -> dict[str, torch.Tensor] | str:
    """What clients' rules send, or what is wrong with it."""
    found: dict[str, torch.Tensor] = {}
    for name in wanted:
        if name not in record:
            return f"{name} is missing"
        array = numbers_in(record[name], 4 * length)
        if isinstance(array, str):
            return f"{name} {array}"
        if array.shape != (length,) or str(array.dtype) != "float32":
            return f"{name} is {array.dtype} of shape {array.shape} and must be float32 of shape ({length},)"
        found[name] = torch.from_numpy(array)
    return found
