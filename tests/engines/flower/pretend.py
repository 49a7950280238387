"""A Flower grid without processes: messages go straight to a ClientApp, each node with its own Context.

`spoil(node, reply)` may change a reply, replace it, or return None for one that never comes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random
from typing import Any

from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid

try:  # newer versions stamp messages with the process's place in a deployment, which a test has none of
    from flwr.supercore.task_identity import TaskIdentity

    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1
except ModuleNotFoundError:
    pass

Spoil = Callable[[int, Message], Message | None]


class PretendGrid(Grid):
    def __init__(self, app: ClientApp, nodes: int, *, seed: int = 0, spoil: Spoil | None = None) -> None:
        self.app = app
        self.random = Random(seed)
        self.spoil = spoil
        self.sent: list[Message] = []
        self.parts: dict[int, int] = {}
        self.contexts: dict[int, Context] = {}
        self.total = nodes
        for part in range(nodes):
            self.connect(part)

    def connect(self, part: int) -> int:
        node = self.random.getrandbits(48)
        self.parts[node] = part
        own = {"partition-id": part, "num-partitions": self.total}
        self.contexts[node] = Context(1, node, own, RecordDict(), {})
        return node

    def disconnect(self, part: int) -> None:
        for node in [node for node, own in self.parts.items() if own == part]:
            del self.parts[node], self.contexts[node]

    def set_run(self, *_: Any, **__: Any) -> None: ...

    @property
    def run(self) -> Any:
        raise NotImplementedError

    def create_message(self, *_: Any, **__: Any) -> Message:
        raise NotImplementedError

    def get_node_ids(self) -> Iterable[int]:
        nodes = list(self.parts)
        self.random.shuffle(nodes)
        return nodes

    def get_nodes(self) -> Any:
        raise NotImplementedError

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        raise NotImplementedError

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        raise NotImplementedError

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """Replies come in any order; a client that raises becomes an error reply, as in Flower."""
        replies = []
        for message in messages:
            self.sent.append(message)
            node = message.metadata.dst_node_id
            message.metadata.__dict__["_message_id"] = f"{len(self.sent)}"
            try:
                reply: Message | None = self.app(message, self.contexts[node])
            except Exception as error:  # what Flower does too
                reply = Message(Error(code=1, reason=repr(error)), reply_to=message)
            if self.spoil is not None and reply is not None and message.metadata.message_type == "train":
                reply = self.spoil(self.parts[node], reply)
            if reply is not None:
                replies.append(reply)
        self.random.shuffle(replies)
        return replies
