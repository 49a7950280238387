"""What a node does for the clients it holds, by the same `Station` that works for the simulator.

The server's `config` names the clients, the share of its steps that each does, and the round in which each last wrote
its personal model. Replies hold updates rather than models, so that no bit is lost on the way.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from flwr.app import Context, Message, MetricRecord

from adafed.config.sections import Config
from adafed.engines.flower.arrays import Arrays, NamedArray
from adafed.engines.flower.personal import PersonalModel
from adafed.engines.flower.replies import ACCURACY, AFTER, CLIENT, LOSS, RUNNING, SAMPLES, STEPS
from adafed.engines.station import MeasureUnit, Part, Personal, Station, TrainUnit
from adafed.training.local import Assignment, Report

RESTARTED = "personal-restarted"


def trained(station: Station, message: Message, context: Context, folder: Any) -> dict[str, Any]:
    config, orders, arrays = station.config, _orders(message), layout(station)
    round_ = int(orders["server-round"])
    received = arrays.flat(message.content.array_records["arrays"])
    lr, told = config.local.rate(round_), config.server.loss
    content: dict[str, Any] = {}
    clients, shares, lasts = orders["clients"], orders["shares"], orders["personal"]
    for client, share, last in zip(clients, shares, lasts, strict=True):
        work = Assignment(int(client), round_, lr, float(share))
        row = torch.zeros(1, station.width)
        with PersonalModel(context, int(client), int(last), folder) as own:
            personal = (own.moved_in(round_),) if config.ditto else ()
            # The loss and the accuracy of the received model always travel along: they cost no phase of their own.
            (report,) = station.train(TrainUnit((work,), (0,), True, told == "after", personal), received, row)
            restarted = own.restarted if config.ditto else False
        content[f"update:{client}"] = arrays.record(row[0])
        content[f"metrics:{client}"] = MetricRecord(_numbers(report) | {RESTARTED: int(restarted)})
    return content


def evaluated(station: Station, message: Message, context: Context, folder: Any) -> dict[str, Any]:
    config, orders, arrays = station.config, _orders(message), layout(station)
    parameters = arrays.flat(message.content.array_records["arrays"])
    content: dict[str, Any] = {}
    for client, last in zip(orders["clients"], orders["personal"], strict=True):
        numbers: dict[str, Any] = {CLIENT: int(client)}
        for personal in (False, True) if config.ditto else (False,):
            with PersonalModel(context, int(client), int(last), folder) as own:
                measured: tuple[Part, ...] = parts(config) if personal else (*parts(config), "train")
                for part in measured:
                    source = (Personal(own.source()),) if personal else ()
                    (score,) = station.measure(MeasureUnit((int(client),), part, source), parameters)
                    found = {SAMPLES: score.samples, LOSS: score.loss, ACCURACY: score.accuracy}
                    told = {prefix(part, personal) + key: value for key, value in found.items()}
                    numbers |= {key: value for key, value in told.items() if value is not None}
        content[f"metrics:{client}"] = MetricRecord(numbers)
    return content


def parts(config: Config) -> tuple[Part, ...]:
    return ("test", "validation") if config.split.validation > 0 else ("test",)


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
    }
    return {key: value for key, value in found.items() if value is not None}


def _orders(message: Message) -> Mapping[str, Any]:
    orders: Mapping[str, Any] = message.content.config_records["config"]
    return orders
