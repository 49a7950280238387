"""Units of work and their results as JSON, the only thing that travels between processes besides raw numbers.

Values are named tuples, which go as rows without names: a round of a hundred small clients lasts a few milliseconds,
and names would be a good part of it.
"""

from __future__ import annotations

import json
from typing import Any

from adafed.engines.station import Labels, MeasureUnit, Personal, PredictUnit, Scores, TrainUnit
from adafed.training.local import Assignment, Measured, Predicted, Report, Suspicion

Unit = TrainUnit | MeasureUnit | PredictUnit


def encode(content: dict[str, Any]) -> bytes:
    return json.dumps(content).encode()


def decode(message: bytes) -> dict[str, Any]:
    content = json.loads(message)
    assert isinstance(content, dict)
    return content


def unit_to_json(unit: Unit) -> dict[str, Any]:
    if isinstance(unit, PredictUnit):
        return {"kind": "predict", "client": unit.client, "labels": unit.labels}
    personal = [(one.source, one.target) for one in unit.personal]
    if isinstance(unit, MeasureUnit):
        told = {"clients": unit.clients, "part": unit.part, "personal": personal, "labels": unit.labels}
        return {"kind": "measure", **told}
    return {
        "kind": "train",
        "work": unit.work,
        "rows": unit.rows,
        "before": unit.before,
        "after": unit.after,
        "personal": personal,
        "labels": unit.labels,
        "suspicion": unit.suspicion,
    }


def unit_from_json(content: dict[str, Any]) -> Unit:
    if content["kind"] == "predict":
        return PredictUnit(content["client"], _labels(content["labels"]))
    personal = tuple(Personal(*one) for one in content["personal"])
    labels = tuple(_labels(one) for one in content["labels"])
    if content["kind"] == "measure":
        return MeasureUnit(tuple(content["clients"]), content["part"], personal, labels)
    work = tuple(Assignment(*one) for one in content["work"])
    rows = tuple(content["rows"])
    return TrainUnit(work, rows, content["before"], content["after"], personal, labels, content["suspicion"])


def reports_from_json(content: list[list[Any]]) -> list[Report]:
    return [
        Report(client, samples, steps, running, _measured(before), _measured(after), _suspicion(suspicion))
        for client, samples, steps, running, before, after, suspicion in content
    ]


def scores_from_json(content: list[list[Any]]) -> list[Scores]:
    return [Scores(*one) for one in content]


def predicted_from_json(content: list[list[Any]]) -> list[Predicted]:
    return [Predicted(*one) for one in content]


def _labels(labels: list[int] | None) -> Labels:
    return None if labels is None else tuple(labels)


def _suspicion(pair: list[Any] | None) -> Suspicion | None:
    return None if pair is None else Suspicion(*pair)


def _measured(pair: list[float] | None) -> Measured | None:
    return None if pair is None else Measured(*pair)
