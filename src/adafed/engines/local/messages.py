"""Units of work and their results as JSON, the only thing that travels between processes besides raw numbers.

Values are named tuples, which go as rows without names: a round of a hundred small clients lasts a few milliseconds,
and names would be a good part of it.
"""

from __future__ import annotations

import json
from typing import Any

from adafed.engines.units import AskUnit, KeptFile, MeasureUnit, Report, TrainUnit
from adafed.rounds.records import Scores
from adafed.training.local import Assignment
from adafed.training.measuring import Measured

Unit = TrainUnit | MeasureUnit | AskUnit


def encode(content: dict[str, Any]) -> bytes:
    return json.dumps(content).encode()


def decode(message: bytes) -> dict[str, Any]:
    content = json.loads(message)
    assert isinstance(content, dict)
    return content


def unit_to_json(unit: Unit) -> dict[str, Any]:
    if isinstance(unit, AskUnit):
        return {"kind": "ask", "client": unit.client, "rule": unit.rule, "orders": unit.orders}
    told: dict[str, Any] = {"kept": unit.kept, "orders": unit.orders} if unit.kept or unit.orders else {}
    if isinstance(unit, MeasureUnit):
        told |= {"last": True} if unit.last else {}
        return {"kind": "measure", "clients": unit.clients, "part": unit.part, "personal": unit.personal, **told}
    return {"kind": "train", "work": unit.work, "rows": unit.rows, "before": unit.before, "after": unit.after, **told}


def unit_from_json(content: dict[str, Any]) -> Unit:
    if content["kind"] == "ask":
        return AskUnit(content["client"], content["rule"], content["orders"])
    kept = tuple(KeptFile(*one) for one in content.get("kept", ()))
    orders = tuple(content.get("orders", ()))
    if content["kind"] == "measure":
        clients, part, personal = tuple(content["clients"]), content["part"], content["personal"]
        return MeasureUnit(clients, part, personal, kept, orders, content.get("last", False))
    work = tuple(Assignment(*one) for one in content["work"])
    return TrainUnit(work, tuple(content["rows"]), content["before"], content["after"], kept, orders)


def reports_from_json(content: list[list[Any]]) -> list[Report]:
    return [
        Report(client, samples, steps, running, _measured(before), _measured(after), told, held_out)
        for client, samples, steps, running, before, after, told, held_out in content
    ]


def scores_from_json(content: list[list[Any]]) -> list[Scores]:
    return [Scores(*one) for one in content]


def _measured(pair: list[float] | None) -> Measured | None:
    return None if pair is None else Measured(*pair)
