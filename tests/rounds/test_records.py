"""Which evaluation of a round is meant, and what counts in it."""

from __future__ import annotations

import math

import pytest

from adafed.engines.station import Scores
from adafed.rounds.records import Evaluation, RoundRecord


def evaluation(part: str, personal: bool, *accuracies: float | None, loss: float = 1.0) -> Evaluation:
    scores = tuple(
        (str(k), Scores(k, 0 if a is None else 10, None if a is None else loss, a)) for k, a in enumerate(accuracies)
    )
    return Evaluation(part, personal, scores)


def record(*evaluations: Evaluation) -> RoundRecord:
    return RoundRecord(1, 0.1, 1.0, (), evaluations=evaluations)


def test_personal_models_count_where_there_are_any() -> None:
    both = record(evaluation("test", False, 0.5), evaluation("test", True, 0.9))
    chosen = both.evaluation()
    assert chosen is not None
    assert chosen.personal
    shared = both.evaluation(personal=False)
    assert shared is not None
    assert not shared.personal
    assert both.evaluation("validation") is None


def test_clients_without_samples_do_not_count() -> None:
    found = evaluation("test", False, 0.5, None, 1.0).fairness
    assert found.mean == pytest.approx(0.75)


def test_a_diverged_loss_does_not_hide_the_accuracies() -> None:
    found = evaluation("test", False, 0.5, 0.7, loss=math.inf).fairness
    assert found.mean == pytest.approx(0.6)
