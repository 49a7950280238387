"""FedProx: the pull to the received model."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from visits import GD, WORK, layer, quadratic, trained, visit

from adafed.client_rules import FedProx
from adafed.client_rules.base import Begun
from adafed.config.configuration import Config, config_from
from adafed.config.merging import merged
from adafed.engines.local.simulate import Simulation


@pytest.mark.parametrize(("mu", "key"), [(0.1, "mu_0.1"), (1.0, "mu_1")])
def test_the_hand_checked_numbers(oracles: dict[str, Any], mu: float, key: str) -> None:
    told = oracles["fedprox"]
    start = torch.tensor(told["start"], dtype=torch.float32)
    found = trained(
        [FedProx(mu)],
        quadratic(told["target"]),
        start,
        how=replace(GD, epochs=told["steps"]),
        work=WORK._replace(lr=told["lr"]),
    )
    assert found.steps == told["steps"]
    assert found.model.tolist() == pytest.approx(told[key], rel=1e-5)


def test_it_is_a_pull_alone_so_that_small_clients_may_train_together() -> None:
    assert FedProx(0.3).begin(visit(layer())) == Begun(pull=0.3)
    assert FedProx.stacks


def test_a_mu_of_zero_changes_no_bit_and_a_larger_one_stays_nearer() -> None:
    how = replace(GD, epochs=4, batch_size=2)
    plain, none, some, much = (
        trained(rules, layer(), how=how) for rules in ([], [FedProx(0.0)], [FedProx(1.0)], [FedProx(8.0)])
    )
    assert torch.equal(plain.row, none.row)
    assert plain.row.norm() > some.row.norm() > much.row.norm()


def experiment(**changes: Any) -> Config:
    base = {
        "rounds": 2,
        "data": {"name": "synthetic", "clients": 5, "samples": 20, "features": 6, "classes": 3},
        "model": {"name": "mlp", "hidden": [7]},
        "local": {"batch_size": 5, "lr": 0.05},
        "run": {"workers": 0},
    }
    return config_from(merged(base, changes))


def ended(config: Config) -> torch.Tensor:
    with Simulation(config) as simulation:
        assert simulation.station.group > 1
        list(simulation.rounds())
        return simulation.state.parameters


def test_its_key_and_the_list_of_rules_are_one() -> None:
    by_key, listed = experiment(local={"mu": 0.5}), experiment(client={"rules": [{"name": "fedprox", "mu": 0.5}]})
    assert by_key.parts.client_rules == listed.parts.client_rules == (FedProx(0.5),)
    assert experiment().parts.client_rules == ()
    assert torch.equal(ended(by_key), ended(listed))
    assert not torch.equal(ended(by_key), ended(experiment()))
    assert by_key.label == "adafed + FedProx(0.5)"
