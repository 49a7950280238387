"""What a node does for the clients it holds, by the same `Station` that works for the simulator.

The server's `config` names the clients and, for each, the share of its steps, the round in which it last wrote what it
keeps, and its orders as JSON. Replies hold updates rather than models, so that no bit is lost on the way.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord

from adafed.engines.flower.arrays import Arrays, NamedArray
from adafed.engines.flower.kept import KeptOnNode
from adafed.engines.flower.replies import CLIENT, SAMPLES
from adafed.engines.flower.trying import models, numbered
from adafed.engines.station import Station
from adafed.engines.units import AskUnit, MeasureUnit, Report, TrainUnit
from adafed.rounds.replies import ACCURACY, AFTER, HELD_OUT, LOSS, RUNNING, STEPS
from adafed.training.local import Assignment

RESTARTED = "kept-restarted"


def trained(station: Station, message: Message, context: Context, folder: str | None) -> dict[str, Any]:
    config, orders, arrays = station.config, _config(message), layout(station)
    round_ = int(orders["server-round"])
    received = arrays.flat(message.content.array_records["arrays"])
    broadcast = message.content.array_records.get("broadcast", ArrayRecord())
    wanted = [f"{rule.name}.{name}" for rule in config.parts.client_rules for name in rule.receives]
    received = torch.cat([received, *(torch.from_numpy(broadcast[name].numpy()) for name in wanted)])
    lr, told_after = config.local.rate(round_), config.server.loss == "after"
    content: dict[str, Any] = {}
    each = zip(orders["clients"], orders["shares"], orders["kept"], orders["orders"], strict=True)
    for client, share, last, own in each:
        work = Assignment(int(client), round_, lr, float(share))
        row = torch.zeros(1, station.visiting.width)
        with KeptOnNode(context, int(client), int(last), folder) as on_node:
            kept = (on_node.file(round_),) if config.keeps else ()
            # The loss and the accuracy of the received model always travel along: they cost no phase of their own.
            unit = TrainUnit((work,), (0,), True, told_after, kept, (json.loads(own),))
            (report,) = station.train(unit, received, row)
            restarted = on_node.restarted
        content[f"update:{client}"] = arrays.record(row[0])
        if station.visiting.sends:
            sent = station.visiting.sent(row[0])
            content[f"vectors:{client}"] = ArrayRecord({name: Array(one.numpy()) for name, one in sent.items()})
        content[f"metrics:{client}"] = MetricRecord(_numbers(report) | {RESTARTED: int(restarted)})
        content[f"told:{client}"] = ConfigRecord({"told": json.dumps(report.told)})
    return content


def evaluated(station: Station, message: Message, context: Context, folder: str | None) -> dict[str, Any]:
    """Every model and part that the server wants of each client. Of several models to try, the same of each.

    A client that lost what it kept says so in place of its own model's numbers: the first model of all, or one made
    anew from the final one, would pass for the one it had. A client that was never drawn has lost nothing.
    """
    orders, arrays = _config(message), layout(station)
    tried = [arrays.flat(record) for record in models(message.content.array_records)]
    lasts = dict(zip(orders["clients"], orders["kept"], strict=True))
    made: set[int] = set()  # clients that have their last own model: made once, whatever is measured with it
    numbers: dict[int, dict[str, Any]] = {int(client): {CLIENT: int(client)} for client in orders["clients"]}
    for wanted in json.loads(orders["wanted"]):
        for client, own in zip(wanted["clients"], wanted["orders"], strict=True):
            with KeptOnNode(context, client, int(lasts[client]), folder) as on_node:
                last = wanted.get("last", False)
                kept = (on_node.own(last, client in made),) if wanted["personal"] else ()
                if on_node.restarted:
                    numbers[client][RESTARTED] = 1
                    continue
                last = last and client not in made
                made |= {client} if last else set()
                unit = MeasureUnit((client,), wanted["part"], wanted["personal"], kept, (own,), last)
                scores = [station.measure(unit, parameters)[0] for parameters in tried]
            before = prefix(wanted["part"], wanted["personal"])
            for k, score in enumerate(scores):
                found = {SAMPLES: score.samples, LOSS: score.loss, ACCURACY: score.accuracy}
                told = {before + key + numbered(k): value for key, value in found.items() if value is not None}
                numbers[client] |= told
    return {f"metrics:{client}": MetricRecord(own) for client, own in numbers.items()}


def answered(station: Station, message: Message) -> dict[str, Any]:
    """What a client rule asks of each client."""
    orders, arrays = _config(message), layout(station)
    parameters = arrays.flat(message.content.array_records["arrays"])
    content: dict[str, Any] = {}
    for client, own in zip(orders["clients"], orders["orders"], strict=True):
        told = station.ask(AskUnit(int(client), str(orders["ask"]), json.loads(own)), parameters)
        content[f"metrics:{client}"] = MetricRecord({CLIENT: int(client)})
        content[f"told:{client}"] = ConfigRecord({"told": json.dumps({orders["ask"]: told})})
    return content


def prefix(part: str, personal: bool) -> str:
    return f"{'personal-' if personal else ''}{part}-"


def layout(station: Station) -> Arrays:
    """The flat vector of the station's model as named arrays."""
    module = station.model.module
    parameters = [NamedArray(name, shape, "float32") for name, shape in station.model.shapes.items()]
    buffers = [(name, buffer) for name, buffer in module.named_buffers() if buffer.is_floating_point()]
    statistics = [NamedArray(name, tuple(buffer.shape), "float32") for name, buffer in buffers]
    return Arrays(tuple(one.name for one in parameters + statistics), tuple(parameters), tuple(statistics), {})


def _numbers(report: Report) -> dict[str, Any]:
    found = {
        CLIENT: report.client,
        SAMPLES: report.samples,
        STEPS: report.steps,
        RUNNING: report.running,
        LOSS: report.before.loss if report.before else None,
        ACCURACY: report.before.accuracy if report.before else None,
        AFTER: report.after.loss if report.after else None,
        HELD_OUT: report.held_out,
    }
    return {key: value for key, value in found.items() if value is not None}


def _config(message: Message) -> Mapping[str, Any]:
    orders: Mapping[str, Any] = message.content.config_records["config"]
    return orders
