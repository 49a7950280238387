"""What travels between processes arrives as it was sent."""

from __future__ import annotations

import math

from adafed.engines.local.messages import (
    decode,
    encode,
    predicted_from_json,
    reports_from_json,
    scores_from_json,
    unit_from_json,
    unit_to_json,
)
from adafed.engines.station import MeasureUnit, Personal, PredictUnit, Scores, TrainUnit
from adafed.training.local import Assignment, Measured, Predicted, Report, Suspicion


def sent(content: object) -> object:
    return decode(encode({"it": content}))["it"]


def test_units() -> None:
    train = TrainUnit((Assignment(3, 7, 0.1, 1 / 3), Assignment(4, 7, 0.1)), (0, 5), True, False)
    ditto = TrainUnit((Assignment(3, 7, 0.1),), (0,), False, True, (Personal(None, "b"),))
    measured = MeasureUnit((1, 2), "test", (Personal("a"), Personal(None)))
    work = (Assignment(3, 7, 0.1, pull=0.3), Assignment(4, 7, 0.1))
    corrected = TrainUnit(work, (0, 1), True, False, labels=((1, 0), None), suspicion=True)
    asked = (PredictUnit(3, (0, 2)), PredictUnit(4, None), MeasureUnit((3,), "train", labels=((0, 2),)))
    for unit in (train, ditto, measured, corrected, *asked):
        assert unit_from_json(sent(unit_to_json(unit))) == unit  # type: ignore[arg-type]


def test_results() -> None:
    reports = [
        Report(1, 20, 4, 0.1 + 0.2, Measured(1e-300, 1.0), None),
        Report(2, 20, 4, 2.5, None, Measured(math.inf, 0.0)),
        Report(3, 2, 4, 2.5, None, None, Suspicion(1 / 3, [0.1, 2.0])),
    ]
    assert reports_from_json(sent(reports)) == reports  # type: ignore[arg-type]
    (diverged,) = reports_from_json(sent([Report(1, 2, 3, math.nan, None, None)]))  # type: ignore[arg-type]
    assert math.isnan(diverged.running)
    answers = [Predicted(1, [2, 0], [0.1, 1.0], [0, 0])]
    assert predicted_from_json(sent(answers)) == answers  # type: ignore[arg-type]
    scores = [Scores(1, 0, None, None), Scores(2, 5, 0.1, 2 / 3)]
    assert scores_from_json(sent(scores)) == scores  # type: ignore[arg-type]
