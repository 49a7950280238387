"""PropFair's weights; that they are the gradient of its objective; and the client rule of that name beside them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import adafed
from adafed.engines.local.simulate import Simulation

UPDATES = torch.eye(3, dtype=torch.float64)
SIZES = [10, 30, 60]


def weights(losses: list[float], **options: float) -> np.ndarray:
    rule = adafed.rule("propfair", **options)
    return adafed.aggregate(rule, UPDATES, losses=losses, sizes=SIZES).coefficients


def test_by_hand() -> None:
    raw = np.array([10 / 1.0, 30 / 2.0, 60 / 2.5])
    np.testing.assert_allclose(weights([2.0, 1.0, 0.5], M=3.0), raw / raw.sum())


def test_the_weights_are_the_gradient_of_the_proportional_utility() -> None:
    losses = torch.tensor([2.0, 1.0, 0.5], dtype=torch.float64, requires_grad=True)
    utility = -(torch.tensor(SIZES, dtype=torch.float64) * torch.log(4.0 - losses)).sum()
    (gradient,) = torch.autograd.grad(utility, losses)
    found = weights(losses.tolist(), M=4.0)
    np.testing.assert_allclose(found, gradient / gradient.sum())


def test_a_large_allowance_is_fedavg() -> None:
    np.testing.assert_allclose(weights([2.0, 1.0, 0.5], M=1e9), [0.1, 0.3, 0.6], rtol=1e-8)


def test_a_loss_beyond_the_allowance_weighs_no_more_than_the_smallest_utility() -> None:
    np.testing.assert_allclose(weights([1e6, 2.8, 0.0], M=3.0), weights([2.8, 2.8, 0.0], M=3.0), rtol=1e-12)


@pytest.mark.parametrize("losses", [[2.0, 1.0, 0.5], [0.1, 4.0, 2.0]])
def test_larger_losses_weigh_more_than_in_fedavg(losses: list[float]) -> None:
    share = weights(losses, M=5.0) / np.array([0.1, 0.3, 0.6])
    assert share[int(np.argmax(losses))] > 1.0 > share[int(np.argmin(losses))]


def test_one_full_batch_step_of_the_client_rule_is_parallel_to_the_server_rule() -> None:
    """The client rule's updates are lr grad F_k / (M - F_k); summed by sample count, that is this rule's direction."""
    shared = {
        "rounds": 1,
        "data": {"name": "digits"},
        "partition": {"name": "dirichlet", "clients": 5, "beta": 0.5, "minimum": 20},
        "model": {"name": "mlp", "hidden": [8]},
        "local": {"epochs": 1, "batch_size": "full", "lr": 0.1, "together": "never"},
        "run": {"workers": 0},
    }

    def moved(**over: object) -> torch.Tensor:
        with Simulation(adafed.config_from(shared | over)) as simulation:
            before = simulation.state.parameters.clone()
            list(simulation.rounds())
            return (simulation.state.parameters - before).double()

    server = moved(rule={"name": "propfair", "M": 3.0})
    client = moved(rule="fedavg", client={"rules": [{"name": "propfair", "M": 3.0}]})
    plain = moved(rule="fedavg")
    assert torch.cosine_similarity(server, client, dim=0) > 1 - 1e-6
    assert torch.cosine_similarity(server, plain, dim=0) < 1 - 1e-5
