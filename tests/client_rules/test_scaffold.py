"""SCAFFOLD: its published recursion, and where it ends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from quadratics import CLIENTS, Federation, away, experiment
from safetensors.torch import load_file

from adafed.engines.local.simulate import Simulation
from adafed.server.state import ServerState

SCAFFOLD: dict[str, Any] = {"client": {"rules": ["scaffold"]}}


def ended(rounds: int, directory: Path | None = None, **changes: Any) -> ServerState:
    with Simulation(experiment(rounds=rounds, **changes), federation=Federation(), directory=directory) as simulation:
        for _ in simulation.rounds():
            pass
        return simulation.state


def test_with_one_full_batch_step_of_everyone_it_is_fedavg() -> None:
    one = {"local": {"epochs": 1}}
    plain, corrected = ended(20, **one), ended(20, **one, **SCAFFOLD)
    torch.testing.assert_close(plain.parameters, corrected.parameters, rtol=0.0, atol=1e-6)
    assert not torch.equal(corrected.known["scaffold.control"], torch.zeros(3))


@pytest.mark.parametrize("cohort", [{}, {"count": 2}])
def test_it_reaches_the_optimum_of_the_average_and_fedavg_does_not(cohort: dict[str, Any]) -> None:
    assert away(experiment(cohort=cohort, **SCAFFOLD)) < 1e-4
    assert away(experiment(cohort=cohort)) > 1e-2


def test_the_published_recursion(tmp_path: Path) -> None:
    """By hand, in float64: y <- y - lr (grad - c_k + c); c_k' = c_k - c + (theta - y) / (E lr); c <- c + their mean."""
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
                y = y - 0.1 * (hessians[k] @ (y - centres[k]) - own[k] + mean)
            models.append(y)
        changes = [(theta - models[k]) / (5 * 0.1) - mean for k in range(CLIENTS)]
        own = [own[k] + changes[k] for k in range(CLIENTS)]
        theta, mean = torch.stack(models).mean(dim=0), mean + torch.stack(changes).mean(dim=0)
    state = ended(4, tmp_path, **SCAFFOLD)
    torch.testing.assert_close(state.parameters.double(), theta, rtol=0.0, atol=1e-5)
    torch.testing.assert_close(state.known["scaffold.control"].double(), mean, rtol=0.0, atol=1e-5)
    for k in range(CLIENTS):
        kept = load_file(tmp_path / "clients" / f"{k}-4.safetensors")["scaffold.control"]
        torch.testing.assert_close(kept.double(), own[k], rtol=0.0, atol=1e-5)


def test_the_server_has_the_mean_of_what_everybody_keeps(tmp_path: Path) -> None:
    """Also where a part of them comes to a round, and the server steps by another rule."""
    state = ended(9, tmp_path, cohort={"count": 2}, rule={"name": "adafed"}, **SCAFFOLD)
    kept = [
        load_file(tmp_path / "clients" / f"{client}-{last}.safetensors")["scaffold.control"]
        for client, last in state.kept.items()
    ]
    mean = torch.stack(kept).sum(dim=0) / CLIENTS  # who never came has zero
    torch.testing.assert_close(state.known["scaffold.control"], mean, rtol=0.0, atol=1e-5)


def test_a_client_that_diverges_learns_nothing(tmp_path: Path) -> None:
    state = ended(2, tmp_path, local={"lr": 1e9, "epochs": 20}, **SCAFFOLD)
    assert state.known["scaffold.control"].isfinite().all()
    for client, last in state.kept.items():
        assert load_file(tmp_path / "clients" / f"{client}-{last}.safetensors")["scaffold.control"].isfinite().all()
