"""FedCorr from end to end, on digits with wrong labels."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from adafed.client_rules import FedCorr
from adafed.config.configuration import Config, config_from
from adafed.data.noise import NoisyFederation
from adafed.engines.local.simulate import Simulation, simulate
from adafed.errors import AdafedError
from adafed.server.state import ServerState

SMALL: dict[str, Any] = {
    "rounds": 36,
    "data": {"name": "digits"},
    "partition": {"name": "iid", "clients": 10},
    "split": {"validation": 0.0, "test": 0.2},
    "model": {"name": "mlp", "hidden": [32]},
    "noise": {"clients": 0.5, "level": 0.6},
    "cohort": {"fraction": 0.5},
    "local": {"epochs": 3, "batch_size": 10, "lr": 0.1, "momentum": 0.5, "mixup": 1.0},
    "rule": "fedavg",
    "fedcorr": {"iterations": 2, "clean_rounds": 6, "neighbours": 20},
    "evaluation": {"every": 36, "improvement_every": 6},
    "run": {"workers": 0},
}


def small(**over: Any) -> Config:
    return config_from(SMALL).changed(**over)


def final(config: Config, directory: Path | None = None) -> tuple[Simulation, float]:
    with Simulation(config, directory=directory) as simulation:
        *_, last = simulation.rounds()
    evaluation = last.evaluation()
    assert evaluation is not None
    return simulation, evaluation.fairness.mean


@cache
def uninterrupted() -> ServerState:
    return final(small())[0].state


def assert_same_known(one: ServerState, other: ServerState) -> None:
    assert one.known
    assert one.known.keys() == other.known.keys()
    assert all(torch.equal(value, other.known[key]) for key, value in one.known.items())


def test_it_finds_who_has_wrong_labels_and_mends_them() -> None:
    simulation, mean = final(small())
    federation = simulation.federation
    assert isinstance(federation, NoisyFederation)
    known = FedCorr().own(simulation.state.known)
    noisy = np.flatnonzero(known["noisy"]).tolist()
    assert noisy == np.flatnonzero(federation.levels).tolist()
    for client in noisy:
        right = federation.federation.client(client).train.targets
        before = (federation.client(client).train.targets == right).mean()
        after = (known[f"labels.{client}"].numpy() == right).mean()
        assert after > before + 0.2
    without = config_from({key: value for key, value in SMALL.items() if key != "fedcorr"})
    assert mean > final(without)[1]


@pytest.mark.parametrize("name", ["afl", "term", "fedfa", "fedfv", "adafed"])
def test_it_goes_before_any_rule(name: str, tmp_path: Path) -> None:
    config = small(rule={"name": name}, rounds=7, fedcorr={"iterations": 1, "group": 5, "clean_rounds": 2})
    state = final(config)[0].state
    with Simulation(config, directory=tmp_path / "run") as simulation:
        for record in simulation.rounds():
            if record.round == 2:  # the last of the first stage
                break
    assert torch.equal(final(config, tmp_path / "run")[0].state.parameters, state.parameters)


def test_the_rounds_tell_the_stage_and_the_second_leaves_noisy_clients_out() -> None:
    with Simulation(small(rounds=27)) as simulation:
        records = list(simulation.rounds())
    assert [record.notes["stage"] for record in records] == [1] * 20 + [2] * 6 + [3]
    assert [len(record.participants) for record in records[:20]] == [1] * 20
    noisy = {simulation.federation.ids[client] for client in np.flatnonzero(simulation.state.known["fedcorr.noisy"])}
    assert records[-1].notes["noisy"] == len(noisy) > 0
    assert not noisy & {participant.client for record in records[20:26] for participant in record.participants}


ONCE = {"iterations": 1, "clean_rounds": 2}


@pytest.mark.parametrize(
    "over",
    [
        {"rounds": 14, "fedcorr": ONCE},
        {"rounds": 8, "fedcorr": ONCE | {"group": 3}, "rule": "adafed", "ditto": {"lambda": 0.1}},
    ],
)
def test_any_number_of_workers_gives_the_same_bits(over: dict[str, Any]) -> None:
    """Through all three stages, with labels that were mended."""
    found = []
    for workers in (0, 2):
        with Simulation(small(run={"workers": workers}, **over)) as simulation:
            stages = [record.notes["stage"] for record in simulation.rounds()]
        assert set(stages) == {1, 2, 3}
        found.append(simulation.state)
    assert any(name.startswith("fedcorr.labels.") for name in found[0].known)
    assert torch.equal(found[0].parameters, found[1].parameters)
    assert_same_known(*found)


@pytest.mark.parametrize("stopped", [7, 10, 20, 26])
def test_a_run_that_was_stopped_goes_on_to_the_same_bits(tmp_path: Path, stopped: int) -> None:
    whole = uninterrupted()
    for record in simulate(small(), directory=tmp_path):
        if record.round == stopped:
            break
    again, _ = final(small(), tmp_path)
    assert torch.equal(again.state.parameters, whole.parameters)
    assert_same_known(again.state, whole)


def test_text_cannot_be_blended(tmp_path: Path) -> None:
    for client in range(3):
        np.savez(tmp_path / f"{client}.npz", x=np.zeros((20, 5), dtype=np.int64), y=np.arange(20) % 3)
    config = config_from({
        "data": {"name": "folder", "folder": str(tmp_path)},
        "model": {"name": "lstm", "hidden": 4},
        "local": {"mixup": 1.0},
        "rounds": 1,
        "run": {"workers": 0},
    })  # fmt: skip
    with pytest.raises(AdafedError, match=r"local\.mixup = 1\.0 blends inputs"):
        list(simulate(config))
