"""The server's state survives being packed, and a step does what the optimiser and the rate say."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from adafed import RuleState, aggregate, rule
from adafed.client_rules import SCAFFOLD, FedCorr
from adafed.server.memory import Memory
from adafed.server.optimizers import optimizer
from adafed.server.schedules import schedule
from adafed.server.state import Server, ServerState


def server(by: str = "sgd", decay: str = "constant") -> Server:
    return Server(rule("fedavg"), optimizer(by), schedule(decay), 0.5)


def outcome(direction: list[float]) -> object:
    return aggregate(rule("fedavg", weighted=False), torch.tensor([direction]))


def test_a_step_moves_against_the_direction_and_leaves_the_old_state_alone() -> None:
    state = ServerState(torch.tensor([1.0, 2.0, 9.0]), 2)
    new = server().step(state, outcome([2.0, -4.0]), torch.tensor([5.0]))  # type: ignore[arg-type]
    assert new.parameters.tolist() == [0.0, 4.0, 5.0]
    assert new.round == 1
    assert state.parameters.tolist() == [1.0, 2.0, 9.0]
    kept = server().step(state, outcome([2.0, -4.0]), None)  # type: ignore[arg-type]
    assert kept.parameters.tolist() == [0.0, 4.0, 9.0]


def test_a_skipped_round_changes_nothing_but_its_number() -> None:
    state = ServerState(torch.ones(3), 3, moments={"m": torch.ones(3)})
    new = server().step(state, None, None)
    assert (new.round, new.parameters, new.moments) == (1, state.parameters, state.moments)


def test_the_rate_follows_the_schedule() -> None:
    found = server(decay="1/t")
    assert [found.rate_of(t) for t in (1, 2, 4)] == pytest.approx([0.5, 0.25, 0.125])


def test_a_term_is_added_to_the_direction() -> None:
    state = ServerState(torch.tensor([1.0, 2.0]), 2)
    new = server().step(state, outcome([2.0, -4.0]), None, torch.tensor([4.0, 0.0]))  # type: ignore[arg-type]
    assert new.parameters.tolist() == [-2.0, 4.0]
    skipped = server().step(state, None, None, torch.tensor([4.0, 0.0]))
    assert torch.equal(skipped.parameters, state.parameters)


@pytest.mark.parametrize("by", ["sgd", "adam", "yogi", "adagrad", "amsgrad"])
def test_packed_and_unpacked_goes_on_to_the_same_bits(by: str) -> None:
    machine, state = server(by), ServerState(torch.randn(4), 4, kept={"3": 1})
    memory = RuleState({"count": [1, 2]}, Memory.of([("a", 1)], torch.randn(1, 4)))
    for step in range(4):
        state = machine.step(state, outcome(torch.randn(4).tolist()), None)  # type: ignore[arg-type]
        tensors, text = state.packed()
        again = ServerState.unpacked(tensors, text)
        assert again.round == step + 1
        assert again.kept == {"3": 1}
        direction = np.arange(4.0).tolist()
        ahead, behind = (machine.step(s, outcome(direction), None) for s in (state, again))  # type: ignore[arg-type]
        assert torch.equal(ahead.parameters, behind.parameters)
    tensors, text = ServerState(torch.zeros(4), 4, rule_state=memory).packed()
    found = ServerState.unpacked(tensors, text).rule_state
    assert found is not None
    assert (found.numbers, found.memory) == (memory.numbers, memory.memory)
    assert found.vectors is not None
    assert memory.vectors is not None
    assert torch.equal(found.vectors, memory.vectors)


KNOWN = {"noise": torch.tensor([0.0, 0.4], dtype=torch.float64), "labels.1": torch.tensor([3, 1])}


def test_what_client_rules_know_is_kept() -> None:
    known = FedCorr().named(KNOWN) | SCAFFOLD().named({"control": torch.ones(4)})
    state = ServerState.unpacked(*ServerState(torch.zeros(4), 4, known=known).packed())
    assert state.moments == {}
    assert state.known.keys() == known.keys()
    assert all(torch.equal(state.known[key], known[key]) for key in known)
    assert FedCorr().own(state.known).keys() == KNOWN.keys()


def test_a_state_of_version_0_1_is_read() -> None:
    """Which named what clients keep `personal`, and what FedCorr knows `correction`."""
    tensors = {"parameters": torch.zeros(4), "moment.m": torch.ones(4)}
    tensors |= {f"correction.{key}": value for key, value in KNOWN.items()}
    state = ServerState.unpacked(tensors, json.dumps({"round": 2, "length": 4, "personal": {"3": 1}}))
    assert (state.round, state.kept, state.moments.keys()) == (2, {"3": 1}, {"m"})
    found = FedCorr().own(state.known)
    assert found.keys() == KNOWN.keys()
    assert all(torch.equal(found[key], KNOWN[key]) for key in KNOWN)
