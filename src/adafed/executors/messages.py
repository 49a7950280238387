"""Units of work and their results as JSON, the only thing that travels between processes besides raw numbers."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from adafed.client import Assignment, Measured, Report
from adafed.executors.station import MeasureUnit, Personal, Scores, TrainUnit

Unit = TrainUnit | MeasureUnit
Result = Report | Scores


def encode(content: dict[str, Any]) -> bytes:
    return json.dumps(content).encode()


def decode(message: bytes) -> dict[str, Any]:
    content = json.loads(message)
    assert isinstance(content, dict)
    return content


def unit_to_json(unit: Unit) -> dict[str, Any]:
    return {"kind": "train" if isinstance(unit, TrainUnit) else "measure", **asdict(unit)}


def unit_from_json(content: dict[str, Any]) -> Unit:
    kind = content.pop("kind")
    personal = tuple(Personal(**one) for one in content.pop("personal"))
    if kind == "measure":
        return MeasureUnit(tuple(content["clients"]), content["part"], personal)
    work = tuple(Assignment(**one) for one in content["work"])
    return TrainUnit(work, tuple(content["rows"]), content["before"], content["after"], personal)


def results_to_json(results: list[Report] | list[Scores]) -> list[dict[str, Any]]:
    return [asdict(result) for result in results]


def reports_from_json(content: list[dict[str, Any]]) -> list[Report]:
    return [Report(**one | {key: _measured(one[key]) for key in ("before", "after")}) for one in content]


def scores_from_json(content: list[dict[str, Any]]) -> list[Scores]:
    return [Scores(**one) for one in content]


def _measured(content: dict[str, float] | None) -> Measured | None:
    return None if content is None else Measured(**content)
