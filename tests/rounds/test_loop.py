"""The loop of the rounds on an engine that is made up: what it makes of what it hears."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from adafed import config_from
from adafed.config.sections import CohortSection
from adafed.rounds.cohort import Sampler
from adafed.rounds.loop import Collected, Loop, Wanted
from adafed.rounds.records import RoundRecord, Scores
from adafed.rounds.replies import LOSS, RUNNING, STEPS, Reply
from adafed.rounds.round import ServerHalf
from adafed.server.state import ServerState

IDS = ("a", "b", "c")


class Forgetful:
    """Everyone trains; only `there` can be measured."""

    processes = at_once = 1

    def __init__(self, there: Sequence[int]) -> None:
        self.there = there

    def begin(self, asked: Any, *_: Any) -> None:
        self.clients = [task.client for task in asked.tasks]

    def replies(self) -> Collected:
        numbers = {LOSS: 1.0, RUNNING: 1.0, STEPS: 1.0}
        found = [Reply(client, 10, torch.ones(4), torch.zeros(0), numbers) for client in self.clients]
        return Collected(found, {}, None)

    def measure(self, wanted: Sequence[Wanted], state: ServerState) -> list[list[Scores]]:
        return [[Scores(client, 5, 1.0, 0.5) for client in one.clients if client in self.there] for one in wanted]

    def tried(self, *_: Any) -> Any:
        raise NotImplementedError

    def ask(self, *_: Any) -> Any:
        raise NotImplementedError

    def save(self, *_: Any) -> None:
        """Of the keeper: nothing is kept."""


def records(there: Sequence[int]) -> list[RoundRecord]:
    config = config_from({"rounds": 2, "rule": "fedavg", "evaluation": {"every": 1, "improvement_every": 0}})
    half = ServerHalf.of(config, IDS, None, 4)
    engine = Forgetful(there)
    sampler = Sampler(CohortSection(), IDS, [10, 10, 10], 0)
    return list(Loop(config, half, sampler, half.first_state(torch.zeros(4), 4), engine, engine).rounds())


def test_an_evaluation_without_everybody_says_so(caplog: pytest.LogCaptureFixture) -> None:
    for record in records([0]):
        evaluation = record.evaluation()
        assert evaluation is not None
        assert [client for client, _ in evaluation.scores] == ["a"]
        assert record.notes["not_evaluated"] == {"b": "did not answer", "c": "did not answer"}
    assert "round 1: evaluated without b, c" in caplog.text


def test_an_evaluation_of_everybody_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    assert all("not_evaluated" not in record.notes for record in records([0, 1, 2]))
    assert not caplog.text
