"""What travels between processes arrives as it was sent."""

from __future__ import annotations

import math

from adafed.engines.local.messages import (
    decode,
    encode,
    reports_from_json,
    scores_from_json,
    unit_from_json,
    unit_to_json,
)
from adafed.engines.units import AskUnit, KeptFile, MeasureUnit, Report, TrainUnit
from adafed.rounds.records import Scores
from adafed.training.local import Assignment
from adafed.training.measuring import Measured


def sent(content: object) -> object:
    return decode(encode({"it": content}))["it"]


def test_units() -> None:
    train = TrainUnit((Assignment(3, 7, 0.1, 1 / 3), Assignment(4, 7, 0.1)), (0, 5), True, False)
    ditto = TrainUnit((Assignment(3, 7, 0.1),), (0,), False, True, (KeptFile(None, "b"),))
    measured = MeasureUnit((1, 2), "test", True, (KeptFile("a"), KeptFile(None)))
    work = (Assignment(3, 7, 0.1), Assignment(4, 7, 0.1))
    orders = ({"fedcorr": {"labels": [1, 0], "pull": 0.3, "suspected": True}}, {})
    corrected = TrainUnit(work, (0, 1), True, False, orders=orders)
    both = TrainUnit(work, (0, 1), True, False, (KeptFile("a", "b"), KeptFile(None, "c")), orders)
    asked = (AskUnit(3, "fedcorr", orders[0]), AskUnit(4, "own", {}), MeasureUnit((3,), "train", orders=orders[:1]))
    for unit in (train, ditto, measured, corrected, both, *asked):
        assert unit_from_json(sent(unit_to_json(unit))) == unit  # type: ignore[arg-type]


def test_results() -> None:
    reports = [
        Report(1, 20, 4, 0.1 + 0.2, Measured(1e-300, 1.0), None),
        Report(2, 20, 4, 2.5, None, Measured(math.inf, 0.0)),
        Report(3, 2, 4, 2.5, None, None, {"fedcorr": {"dimension": 1 / 3, "losses": [0.1, 2.0]}}),
        Report(4, 2, 4, 2.5, None, None, {}, 0.1 + 0.2),
    ]
    assert reports_from_json(sent(reports)) == reports  # type: ignore[arg-type]
    (diverged,) = reports_from_json(sent([Report(1, 2, 3, math.nan, None, None)]))  # type: ignore[arg-type]
    assert math.isnan(diverged.running)
    answer = {"answers": [2, 0], "confidences": [0.1, 1 / 3], "labels": [0, 0]}
    assert sent(answer) == answer
    scores = [Scores(1, 0, None, None), Scores(2, 5, 0.1, 2 / 3)]
    assert scores_from_json(sent(scores)) == scores  # type: ignore[arg-type]
