"""Units of work and their results as JSON, the only thing that travels between processes besides raw numbers.

Values are named tuples, which go as rows without names: a round of a hundred small clients lasts a few milliseconds,
and names would be a good part of it.
"""

from __future__ import annotations

import json
from typing import Any

from adafed.client import Assignment, Measured, Report
from adafed.executors.station import MeasureUnit, Personal, Scores, TrainUnit

Unit = TrainUnit | MeasureUnit


def encode(content: dict[str, Any]) -> bytes:
    return json.dumps(content).encode()


def decode(message: bytes) -> dict[str, Any]:
    content = json.loads(message)
    assert isinstance(content, dict)
    return content


def unit_to_json(unit: Unit) -> dict[str, Any]:
    personal = [(one.source, one.target) for one in unit.personal]
    if isinstance(unit, MeasureUnit):
        return {"kind": "measure", "clients": unit.clients, "part": unit.part, "personal": personal}
    return {
        "kind": "train",
        "work": unit.work,
        "rows": unit.rows,
        "before": unit.before,
        "after": unit.after,
        "personal": personal,
    }


def unit_from_json(content: dict[str, Any]) -> Unit:
    personal = tuple(Personal(*one) for one in content["personal"])
    if content["kind"] == "measure":
        return MeasureUnit(tuple(content["clients"]), content["part"], personal)
    work = tuple(Assignment(*one) for one in content["work"])
    return TrainUnit(work, tuple(content["rows"]), content["before"], content["after"], personal)


def reports_from_json(content: list[list[Any]]) -> list[Report]:
    return [
        Report(client, samples, steps, running, _measured(before), _measured(after))
        for client, samples, steps, running, before, after in content
    ]


def scores_from_json(content: list[list[Any]]) -> list[Scores]:
    return [Scores(*one) for one in content]


def _measured(pair: list[float] | None) -> Measured | None:
    return None if pair is None else Measured(*pair)
