"""The losses' derivatives against autograd."""

from __future__ import annotations

import pytest
import torch

from adafed.training.losses import Loss, losses_and_errors, sample_losses


@pytest.mark.parametrize("shape", [(7,), (3, 5)])
@pytest.mark.parametrize("loss", ["cross-entropy", "double-softmax"])
def test_errors_are_the_derivatives_of_the_losses(loss: Loss, shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    outputs = 3.0 * torch.randn(*shape, 4, dtype=torch.float64, requires_grad=True)
    targets = torch.randint(0, 4, shape)
    losses, errors = losses_and_errors(outputs.detach(), targets, loss)
    expected = sample_losses(outputs.flatten(0, -2), targets.flatten(), loss)
    assert torch.allclose(losses.flatten(), expected, atol=1e-12)
    (derivative,) = torch.autograd.grad(expected.sum(), outputs)
    assert torch.allclose(errors, derivative, atol=1e-12)


def test_the_outputs_are_left_as_they_were() -> None:
    outputs = torch.tensor([[1.0, 2.0]])
    losses_and_errors(outputs, torch.tensor([0]), "cross-entropy")
    assert outputs.tolist() == [[1.0, 2.0]]


def test_extreme_outputs_give_finite_errors() -> None:
    losses, errors = losses_and_errors(torch.tensor([[1e30, -1e30]]), torch.tensor([0]), "cross-entropy")
    assert losses.tolist() == [0.0]
    assert errors.tolist() == [[0.0, 0.0]]
