"""One TOML, two engines: what Flower's clients and server make of an experiment is what the simulator makes of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from pretend import PretendGrid

from adafed import Config, config_from, simulate
from adafed.flower.experiment import experiment_client, run_experiment
from adafed.runs.config import merged
from adafed.runs.store import Store
from adafed.runs.summary import summarise
from adafed.server import ServerState
from adafed.simulate import Simulation

BASE: dict[str, Any] = {
    "rounds": 2,
    "data": {"name": "digits"},
    "partition": {"name": "dirichlet", "clients": 6, "beta": 0.5, "minimum": 20},
    "model": {"name": "mlp", "hidden": [8]},
    "local": {"epochs": 1, "batch_size": 16, "together": "never"},
    "run": {"workers": 0},
}


def experiment(**changes: Any) -> Config:
    return config_from(merged(BASE, changes))


def simulated(config: Config, directory: Path | None = None) -> ServerState:
    with Simulation(config, directory=directory) as simulation:
        for _ in simulation.rounds():
            pass
        return simulation.state


def on_flower(config: Config, directory: Path, nodes: int = 6, **options: Any) -> ServerState:
    personal = {"personal-dir": str(directory / "personal")} if options.pop("kept", False) else {}
    grid = PretendGrid(experiment_client(config, **personal), nodes)
    return run_experiment(grid, config, directory, nodes=nodes, **options)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"rule": "fedavg", "server": {"optimizer": "adam", "rate": 0.1}},
        {"rule": {"name": "qffl", "q": 1.0}},
        {"rule": {"name": "fedfv", "tau": 1}, "cohort": {"fraction": 0.5}, "rounds": 3},
        {"rule": "fedfa", "server": {"loss": "after"}},
        {"rule": "afl", "server": {"loss": "running"}},
        {"cohort": {"count": 3, "sampling": "size", "stragglers": 0.5, "dropout": 0.3}, "rounds": 3},
        {"ditto": {"lambda": 0.5}, "rounds": 3, "cohort": {"fraction": 0.5}},
        {"local": {"mu": 0.1, "momentum": 0.5, "lr_decay": 0.9}},
    ],
)
@pytest.mark.parametrize("nodes", [6, 4])
def test_both_engines_give_the_same_bits(changes: dict[str, Any], nodes: int, tmp_path: Path) -> None:
    config = experiment(**changes)
    here = simulated(config, tmp_path / "here")
    there = on_flower(config, tmp_path / "there", nodes)
    assert torch.equal(here.parameters, there.parameters)
    for name, moment in here.moments.items():
        assert torch.equal(moment, there.moments[name])
    assert (here.rule_state and here.rule_state.numbers) == (there.rule_state and there.rule_state.numbers)
    assert here.personal == there.personal


def test_clients_trained_together_agree_to_float_tolerance(tmp_path: Path) -> None:
    config = experiment(partition={"name": "iid", "clients": 6}, local={"together": "auto"})
    here, there = simulated(config), on_flower(config, tmp_path)
    torch.testing.assert_close(here.parameters, there.parameters, rtol=1e-5, atol=1e-6)


def test_the_run_directory_holds_what_the_simulator_writes(tmp_path: Path) -> None:
    config = experiment(cohort={"fraction": 0.5}, ditto={"lambda": 0.5})
    for _ in simulate(config, directory=tmp_path / "here"):
        pass
    on_flower(config, tmp_path / "there")
    (here, there) = (Store(tmp_path / name / "rounds.sqlite", read_only=True) for name in ("here", "there"))
    for mine, theirs in zip(here.records(), there.records(), strict=True):
        assert mine.norm == theirs.norm
        assert mine.condition == theirs.condition
        for one, other in zip(mine.participants, theirs.participants, strict=True):
            assert (one.client, one.samples, one.steps) == (other.client, other.samples, other.steps)
            assert (one.before, one.running, one.coefficient) == (other.before, other.running, other.coefficient)
    last, other = list(here.records())[-1], list(there.records())[-1]
    assert last.rho == other.rho
    assert last.mean_decrease == pytest.approx(other.mean_decrease, rel=1e-5)
    for mine, theirs in zip(last.evaluations, other.evaluations, strict=True):
        assert (mine.part, mine.personal) == (theirs.part, theirs.personal)
        for (name, one), (other_name, another) in zip(mine.scores, theirs.scores, strict=True):
            assert (name, one.samples, one.accuracy) == (other_name, another.samples, another.accuracy)
            assert one.loss == pytest.approx(another.loss, rel=1e-5)
    here.close()
    there.close()
    finals = [summarise(tmp_path / name).final for name in ("here", "there")]
    assert finals[0].keys() == finals[1].keys()
    for measure, value in finals[0].items():
        assert value == pytest.approx(finals[1][measure], rel=1e-5), measure
    assert (tmp_path / "there" / "model.safetensors").exists()
