"""A safe step through the whole round: quadratics and digits in the simulator, and what the record says of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from adafed import AdafedError, config_from, optimizer, rule, schedule
from adafed.config.configuration import Config
from adafed.config.merging import merged
from adafed.engines.local.simulate import Simulation
from adafed.rounds.records import RoundRecord
from adafed.rounds.replies import LOSS, Reply
from adafed.rounds.round import ServerHalf
from adafed.rounds.safe import Trying
from adafed.server.state import Server, ServerState

BASE: dict[str, Any] = {
    "rounds": 6,
    "partition": {"name": "shards", "clients": 8, "shards": 2},
    "model": {"name": "mlp", "hidden": [8]},
    "cohort": {"fraction": 0.5},
    "local": {"epochs": 1, "batch_size": 16},
    "rule": {"name": "adafed"},
    "server": {"step": "safe"},
    "run": {"workers": 0},
}


def experiment(**changes: Any) -> Config:
    return config_from(merged(BASE, changes))


class Quadratics:
    """Clients with f_k = 1/2 (x - c_k)' A_k (x - c_k) + 1, each of which sends one gradient step's update."""

    def __init__(self, clients: int, seed: int, size: int = 4) -> None:
        random = np.random.default_rng(seed)
        roots = random.standard_normal((clients, size, size))
        self.hessians = roots @ roots.transpose(0, 2, 1) + 0.1 * np.eye(size)
        self.centres = random.standard_normal((clients, size))
        self.size = size

    def loss(self, client: int, x: torch.Tensor) -> float:
        away = x.double().numpy() - self.centres[client]
        return float(away @ self.hessians[client] @ away / 2 + 1.0)

    def replies(self, x: torch.Tensor) -> list[Reply]:
        found = []
        for client, (hessian, centre) in enumerate(zip(self.hessians, self.centres, strict=True)):
            update = torch.from_numpy(0.1 * hessian @ (x.double().numpy() - centre)).float()
            found.append(Reply(client, 10, update, torch.empty(0), {LOSS: self.loss(client, x)}))
        return found

    def tell(self, clients: Sequence[int], states: Sequence[ServerState]) -> list[Mapping[int, float]]:
        return [{client: self.loss(client, state.parameters) for client in clients} for state in states]

    def rounds(self, name: str, rate: float, count: int, at_once: int = 1) -> Iterator[tuple[ServerState, RoundRecord]]:
        half = ServerHalf(
            Server(rule(name), optimizer("sgd"), schedule("constant"), rate, "safe"), local_lr=lambda _: 0.1
        )
        state = half.first_state(torch.full((self.size,), 20.0), self.size)
        for t in range(1, count + 1):
            trying = Trying(self.tell, at_once)
            state, record, _ = half.conclude(state, t, self.replies(state.parameters), {}, trying=trying)
            yield state, record


@settings(deadline=None, max_examples=40)
@given(
    seed=st.integers(0, 10**6),
    clients=st.integers(1, 6),
    name=st.sampled_from(["adafed", "fedavg", "fedfv", "qffl", "fedmgda+", "fedmdfg"]),
    rate=st.sampled_from([1e-3, 1.0, 3.0, 1e3]),
)
def test_no_members_loss_rises_on_quadratics(seed: int, clients: int, name: str, rate: float) -> None:
    """Whatever the rule and the first rate: also where the direction is no descent for everybody."""
    for _, record in Quadratics(clients, seed).rounds(name, rate, 12):
        for one in record.participants:
            assert one.before is not None
            assert one.stepped is not None
            assert one.stepped <= one.before
        assert record.rho == 1.0
        assert (record.server_rate == 0.0) == (record.skipped is not None)


@pytest.mark.parametrize("rate", [0.01, 1.0, 30.0])
def test_far_from_everyones_minimum_it_lengthens_and_gets_there_from_any_rate(rate: float) -> None:
    """AdaFed's step is safe sooner or later, since every member descends along it: the rate need not be tuned."""
    problem = Quadratics(3, seed=5)
    found = list(problem.rounds("adafed", rate, 60))
    lengths = [record.server_rate for _, record in found]
    if rate < 1:
        assert lengths[:3] == [4 * rate, 16 * rate, 64 * rate]
    start, end = torch.full((4,), 20.0), found[-1][0].parameters
    for client in range(3):
        assert problem.loss(client, end) < 0.05 * problem.loss(client, start)


def test_models_that_go_along_in_a_phase_change_nothing_that_is_found() -> None:
    for name, rate in (("adafed", 0.01), ("fedavg", 50.0), ("fedavg", 1e4)):
        alone = [(state.parameters, state.step) for state, _ in Quadratics(4, 1).rounds(name, rate, 10)]
        together = [(state.parameters, state.step) for state, _ in Quadratics(4, 1).rounds(name, rate, 10, 3)]
        assert all(torch.equal(a[0], b[0]) and a[1] == b[1] for a, b in zip(alone, together, strict=True))


def test_two_steps_tried_are_one_phase_where_three_models_go_in_it_and_no_search_takes_more_than_three() -> None:
    asked: list[int] = []

    def counted(clients: Sequence[int], states: Sequence[ServerState]) -> list[Mapping[int, float]]:
        asked.append(len(states))
        return problem.tell(clients, states)

    problem = Quadratics(3, 2)
    half = ServerHalf(Server(rule("adafed"), optimizer("sgd"), schedule("constant"), 1.0, "safe"))
    state, phases = half.first_state(torch.full((4,), 20.0), 4), {}
    for t in range(1, 41):
        asked.clear()
        state, record, _ = half.conclude(state, t, problem.replies(state.parameters), {}, trying=Trying(counted, 3))
        phases.setdefault(record.notes["steps_tried"], set()).add(len(asked))
    assert phases[2] == {1}
    assert max(phases) > 2
    assert max(map(max, phases.values())) <= 3


# In the simulator


def run(config: Config, directory: Path | None = None) -> tuple[ServerState, list[RoundRecord]]:
    with Simulation(config, directory=directory) as simulation:
        records = list(simulation.rounds())
        return simulation.state, records


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"rule": {"name": "fedavg"}, "server": {"rate": 5.0}},
        {"memory": {"rounds": "all"}, "server": {"loss": "running"}},
        {"client": {"rules": ["scaffold"]}, "rule": {"name": "fedavg"}},
        {"client": {"rules": ["feddyn"]}, "rule": {"name": "fedavg"}},
        {"cohort": {"dropout": 0.4, "stragglers": 0.5}, "evaluation": {"improvement_every": 0}},
    ],
)
def test_nobody_of_the_cohort_is_worse_off(changes: dict[str, Any]) -> None:
    _, records = run(experiment(**changes))
    assert {record.rho for record in records if record.norm is not None} == {1.0}
    for record in records:
        members = [one for one in record.participants if one.dropped is None]
        assert all(one.before is not None and one.stepped is not None for one in members)
        assert record.norm is None or record.notes["steps_tried"] >= 2


def test_the_number_of_workers_changes_no_bit() -> None:
    here, mine = run(experiment())
    there, theirs = run(experiment(run={"workers": 2}))
    assert torch.equal(here.parameters, there.parameters)
    assert here.step == there.step
    assert [record.server_rate for record in mine] == [record.server_rate for record in theirs]


def test_a_run_in_pieces_gives_the_same_bits(tmp_path: Path) -> None:
    small = {"rate": 0.25}  # so that what the search has learned by then is not what it began with
    whole, records = run(experiment(server=small), tmp_path / "whole")
    assert records[2].server_rate != 0.25
    run(experiment(rounds=3, server=small), tmp_path / "pieces")
    pieces, later = run(experiment(server=small), tmp_path / "pieces")
    assert [record.round for record in later] == [4, 5, 6]
    assert torch.equal(whole.parameters, pieces.parameters)
    assert whole.step == pieces.step != 0.25


def test_where_every_step_harms_somebody_the_model_stays_and_the_round_says_for_whom() -> None:
    """Two clients who share nothing but the model: client 1's loss rises along the mean update of both."""
    half = ServerHalf(
        Server(rule("fedavg"), optimizer("sgd"), schedule("constant"), 1.0, "safe"), name_of=lambda k: f"c{k}"
    )
    replies = [Reply(k, 10, torch.tensor([g]), torch.tensor([2.0]), {LOSS: 1.0}) for k, g in ((0, 3.0), (1, -1.0))]

    def tell(clients: Sequence[int], states: Sequence[ServerState]) -> list[Mapping[int, float]]:
        return [{0: 1.0 + float(state.parameters[0]), 1: 1.0 - float(state.parameters[0])} for state in states]

    state = half.first_state(torch.tensor([0.0, 7.0]), 1)
    found = half.conclude(state, 1, replies, {}, trying=Trying(tell))
    assert torch.equal(found.state.parameters, state.parameters)  # statistics too
    assert found.state.round == 1
    assert found.state.step == 0.5
    assert found.record.skipped is not None
    assert "would have cost c1" in found.record.skipped
    assert found.record.server_rate == 0.0
    assert found.record.notes == {"steps_tried": 6, "shortened_for": ["c1"]}


def test_a_member_that_does_not_tell_is_named_and_one_that_was_dropped_does_not_count() -> None:
    half = ServerHalf(Server(rule("adafed"), optimizer("sgd"), schedule("constant"), 1.0, "safe"))
    update, nan = torch.tensor([1.0]), torch.tensor([float("nan")])
    replies = [Reply(k, 10, one, torch.empty(0), {LOSS: 1.0}) for k, one in enumerate((update, update, nan))]
    asked: list[int] = []

    def tell(clients: Sequence[int], states: Sequence[ServerState]) -> list[Mapping[int, float]]:
        asked.extend(clients)
        return [{0: 1.0 + float(state.parameters[0]) / 8, 2: 9.0} for state in states]

    found = half.conclude(half.first_state(torch.zeros(1), 1), 1, replies, {}, trying=Trying(tell))
    assert set(asked) == {0, 1}
    assert found.record.server_rate == 4.0
    assert found.record.notes["did_not_tell"] == ["1"]


@pytest.mark.parametrize(
    ("server", "told"),
    [
        ({"optimizer": "adam"}, "server.optimizer = 'adam'"),
        ({"optimizer": {"momentum": 0.5}}, "without momentum"),
        ({"schedule": "1/t"}, "server.schedule = '1/t'"),
        ({"step": "long"}, "server.step"),
    ],
)
def test_mistakes_are_told_before_any_data_is_read(server: dict[str, Any], told: str) -> None:
    with pytest.raises(AdafedError, match=told):
        experiment(server=server)


def test_a_method_says_that_it_steps_safely() -> None:
    assert experiment().label.endswith("safe step")
    assert "step" not in experiment(server={"step": "rate"}).label


@pytest.mark.parametrize("at_once", [1, 3])
def test_where_nobody_moved_there_is_no_step_however_many_models_go_in_a_phase(at_once: int) -> None:
    server = Server(rule("adafed"), optimizer("sgd"), schedule("constant"), 1.0, "safe")
    half = ServerHalf(server)
    still = [Reply(k, 10, torch.zeros(3), torch.empty(0), {LOSS: 1.0}) for k in range(2)]
    found = half.conclude(
        half.first_state(torch.ones(3), 3), 1, still, {}, trying=Trying(lambda *_: [{}] * at_once, at_once)
    )
    assert torch.equal(found.state.parameters, torch.ones(3))
    assert found.record.skipped
