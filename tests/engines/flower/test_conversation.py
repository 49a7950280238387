"""What is heard of an evaluation: whom a node may speak for."""

from __future__ import annotations

import logging

import pytest
from flwr.app import Error, Message, MessageType, MetricRecord, RecordDict
from pretend import PretendGrid  # for what it sets up: newer versions stamp messages with a place in a deployment

from adafed.engines.flower.conversation import Conversation

assert PretendGrid
LEFT_OUT = "evaluation: a reply of node {} left out: it is no client of that node"


def reply(node: int, **clients: float) -> Message:
    told = {
        f"metrics:{client}": MetricRecord({"client-id": int(client[1:]), "loss": loss})
        for client, loss in clients.items()
    }
    return Message(RecordDict(told), reply_to=Message(RecordDict(), node, MessageType.EVALUATE))


@pytest.mark.parametrize(("known_alone", "heard"), [(True, [1]), (False, [1, 9])])
def test_a_node_speaks_for_its_own_clients(
    known_alone: bool, heard: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    """Client 9 has not registered; node 5 holds client 2, so node 4 cannot speak for it."""
    conversation = Conversation(1)
    conversation.roster.holders = {1: 4, 2: 5}
    with caplog.at_level(logging.WARNING, logger="flwr"):
        found = conversation.measured([reply(4, c1=0.5, c2=7.0, c9=0.25)], known_alone=known_alone)
    assert sorted(found) == heard
    assert found[1]["loss"] == 0.5
    assert [record.getMessage() for record in caplog.records] == [LEFT_OUT.format(4)] * (3 - len(heard))


def test_a_node_that_fails_is_told_with_the_names_of_its_clients(caplog: pytest.LogCaptureFixture) -> None:
    conversation = Conversation(1)
    conversation.roster.holders = {1: 4, 2: 5, 3: 4}
    failed = [
        Message(Error(0, "out of memory"), reply_to=Message(RecordDict(), node, MessageType.EVALUATE))
        for node in (4, 6)
    ]
    with caplog.at_level(logging.WARNING, logger="flwr"):
        assert conversation.measured(failed, ["anna", "bert", "cleo", "dora"].__getitem__, known_alone=True) == {}
    assert [record.getMessage() for record in caplog.records] == [
        "evaluation: client bert, dora left out: out of memory",
        "evaluation: client of node 6 left out: out of memory",
    ]
