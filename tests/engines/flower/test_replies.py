"""Replies that are wrong in their bytes: they are refused with a reason, and cost no more than they are long."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, Message, MessageType, MetricRecord, RecordDict
from pretend import PretendGrid  # for what it sets up: newer versions stamp messages with a place in a deployment

from adafed.engines.flower.arrays import Arrays, numbers_in
from adafed.engines.flower.replies import Limits, screened

assert PretendGrid
MODEL = ArrayRecord({"w": Array(np.zeros((2, 2), np.float32))})


def reply(node: int, metrics: dict[str, Any], arrays: ArrayRecord = MODEL) -> Message:
    content = RecordDict({"metrics": MetricRecord(metrics), "update": arrays})
    return Message(content, reply_to=Message(RecordDict(), node, MessageType.TRAIN))


def read(*messages: Message, limits: Limits | None = None) -> Any:
    return screened(messages, Arrays.of(MODEL), torch.zeros(4), limits or Limits({}, {}), ())


def npy(header: str) -> bytes:
    text = header.encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text


@pytest.mark.parametrize(
    "data",
    [
        npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000, 1000000), }\n"),
        npy("{'descr': '<f4', 'fortran_order': False, 'shape': " + "(" * 5000),
        npy("[" * 5000 + "]" * 4000),
        npy("{'descr': '|O', 'fortran_order': False, 'shape': (2, 2), }\n"),
        b"",
        b"\x93NUMPY\x09\x09",
        bytes(10**6),
    ],
)
def test_an_array_of_wrong_bytes_is_refused_with_a_reason(data: bytes) -> None:
    told = numbers_in(Array("float32", (2, 2), "numpy.ndarray", data), 16)
    assert isinstance(told, str)
    assert "\n" not in told
    assert len(told) < 300
    record = ArrayRecord({"w": Array("float32", (2, 2), "numpy.ndarray", data)})
    found = read(reply(1, {"num-examples": 3, "client-id": 1}, record))
    assert list(found.refused) == [1]


@pytest.mark.parametrize("samples", [0, -1, 2.5, 2**53, 1e308, float("inf"), float("nan")])
def test_a_sample_count_that_no_table_holds_is_refused(samples: float) -> None:
    assert read(reply(1, {"num-examples": samples, "client-id": 1})).refused == {1: f"sample count is {float(samples)}"}


def test_clients_that_several_nodes_claim_are_refused() -> None:
    found = read(*(reply(node, {"num-examples": 3, "client-id": node % 3}) for node in range(1, 6)))
    assert [one.client for one in found.replies] == [0]
    assert sorted(found.refused) == [1, 2]


def test_a_record_of_metrics_that_is_called_otherwise_is_no_client() -> None:
    message = reply(1, {"num-examples": 3, "client-id": 1})
    message.content["metrics-timing"] = MetricRecord({"seconds": 1.0})
    found = read(message)
    assert [one.client for one in found.replies] == [1]
    assert (found.refused, found.strangers) == ({}, [])


def test_a_mask_that_comes_back_as_it_went_out_is_no_fault() -> None:
    sent = ArrayRecord({"w": Array(np.array([0.0, -np.inf], np.float32))})
    content = RecordDict({"metrics": MetricRecord({"num-examples": 3, "client-id": 1}), "arrays": sent})
    message = Message(content, reply_to=Message(RecordDict(), 1, MessageType.TRAIN))
    received = torch.tensor([1.0, -float("inf")])
    found = screened([message], Arrays.of(sent), received, Limits({}, {}), ())
    assert found.replies[0].update.tolist() == [1.0, 0.0]
