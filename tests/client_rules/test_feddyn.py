"""FedDyn: its published recursion, and where it ends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from quadratics import CLIENTS, Federation, away, experiment
from safetensors.torch import load_file

from adafed.config.configuration import config_from
from adafed.engines.local.simulate import Simulation
from adafed.errors import AdafedError

ALPHA = 0.5
FEDDYN: dict[str, Any] = {"client": {"rules": [{"name": "feddyn", "alpha": ALPHA}]}}


@pytest.mark.parametrize("cohort", [{}, {"count": 2}])
def test_it_reaches_the_optimum_of_the_average_and_fedavg_does_not(cohort: dict[str, Any]) -> None:
    assert away(experiment(cohort=cohort, rounds=200, **FEDDYN)) < 1e-4
    assert away(experiment(cohort=cohort, rounds=200)) > 1e-2


def test_the_published_recursion(tmp_path: Path) -> None:
    """By hand, in float64: y <- y - lr (grad - h_k + alpha (y - theta)); h_k <- h_k - alpha (y - theta);
    h <- h - alpha/N sum (y_k - theta); theta <- mean of y_k - h / alpha."""
    federation = Federation()
    hessians = [torch.from_numpy(one) for one in federation.hessians]
    centres = [torch.from_numpy(one) for one in federation.centres]
    theta = torch.tensor([2.0, -1.5, 1.0], dtype=torch.float64)
    own, mean = [torch.zeros(3).double() for _ in range(CLIENTS)], torch.zeros(3).double()
    for _ in range(4):
        models = []
        for k in range(CLIENTS):
            y = theta.clone()
            for _ in range(5):
                y = y - 0.1 * (hessians[k] @ (y - centres[k]) - own[k] + ALPHA * (y - theta))
            models.append(y)
        own = [own[k] - ALPHA * (models[k] - theta) for k in range(CLIENTS)]
        mean = mean - ALPHA / CLIENTS * torch.stack([y - theta for y in models]).sum(dim=0)
        theta = torch.stack(models).mean(dim=0) - mean / ALPHA
    with Simulation(experiment(rounds=4, **FEDDYN), federation=federation, directory=tmp_path) as simulation:
        for _ in simulation.rounds():
            pass
    torch.testing.assert_close(simulation.state.parameters.double(), theta, rtol=0.0, atol=1e-5)
    torch.testing.assert_close(simulation.state.known["feddyn.bent"].double(), mean, rtol=0.0, atol=1e-5)
    for k in range(CLIENTS):
        kept = load_file(tmp_path / "clients" / f"{k}-4.safetensors")["feddyn.bent"]
        torch.testing.assert_close(kept.double(), own[k], rtol=0.0, atol=1e-5)


def test_any_server_rule_has_the_term_in_its_direction() -> None:
    """The recorded direction is the rule's own; the step is longer by h / alpha."""
    config = experiment(rounds=3, rule={"name": "adafed"}, server={"rate": 0.5}, **FEDDYN)
    with Simulation(config, federation=Federation()) as simulation:
        before = simulation.state.parameters
        for record in simulation.rounds():
            step = (before - simulation.state.parameters) / 0.5
            term = simulation.state.known["feddyn.bent"] / ALPHA
            assert record.norm == pytest.approx(float((step - term).norm()), rel=1e-4)
            before = simulation.state.parameters


@pytest.mark.parametrize("alpha", [0.0, -1.0, float("inf")])
def test_alpha_is_within_reason(alpha: float) -> None:
    with pytest.raises(
        AdafedError, match=r"feddyn.alpha is .*; it must be a finite number at least 1e-09 and at most 1e\+09$"
    ):
        config_from({"client": {"rules": [{"name": "feddyn", "alpha": alpha}]}})
