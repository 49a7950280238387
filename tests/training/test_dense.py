"""The written-out gradient is autograd's, and the step inside the product is SGD's."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from adafed.training.dense import Layers, row, tied
from adafed.training.flat_module import FlatModule
from adafed.training.losses import Loss, sample_losses
from adafed.training.stacked import group_size

MODELS: dict[str, Callable[[], nn.Module]] = {
    "relu": lambda: nn.Sequential(
        nn.Flatten(), nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 3)
    ),
    "tanh, nested": lambda: nn.Sequential(nn.Sequential(nn.Linear(6, 5), nn.Tanh()), nn.Identity(), nn.Linear(5, 3)),
    "sigmoid, no bias": lambda: nn.Sequential(nn.Linear(6, 5, bias=False), nn.Sigmoid(), nn.Linear(5, 3)),
    "activation first and last": lambda: nn.Sequential(nn.Tanh(), nn.Linear(6, 3), nn.ReLU()),
}


def problem(name: str) -> tuple[FlatModule, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    return FlatModule(MODELS[name]()), torch.randn(9, 6), torch.randint(0, 3, (9,))


def by_autograd(model: FlatModule, x: torch.Tensor, y: torch.Tensor, loss: Loss) -> tuple[list[torch.Tensor], float]:
    mean = sample_losses(model.module(x), y, loss).mean()
    return list(torch.autograd.grad(mean, model.trained)), mean.item()


@pytest.mark.parametrize("loss", ["cross-entropy", "double-softmax"])
@pytest.mark.parametrize("name", MODELS)
def test_gradients_are_autograds(name: str, loss: Loss) -> None:
    model, x, y = problem(name)
    layers = Layers.of(model, x)
    assert layers is not None
    expected, mean = by_autograd(model, x, y, loss)
    grads, value = layers.gradients(model.trained, x, y, loss, len(y))
    assert value.item() == pytest.approx(mean, rel=1e-6)
    for mine, theirs in zip(grads, expected, strict=True):
        assert torch.allclose(mine, theirs, atol=1e-6)


@pytest.mark.parametrize("pull", [0.0, 0.7])
@pytest.mark.parametrize("name", MODELS)
def test_the_step_is_the_gradient_times_the_rate(name: str, pull: float) -> None:
    model, x, y = problem(name)
    layers = Layers.of(model, x)
    assert layers is not None
    expected, mean = by_autograd(model, x, y, "cross-entropy")
    before = [parameter.detach().clone() for parameter in model.trained]
    anchor = [torch.randn_like(parameter) for parameter in before] if pull else None
    value = layers.step(model.trained, x, y, "cross-entropy", 0.3, anchor, pull)
    assert value.item() == pytest.approx(mean, rel=1e-6)
    for k, (old, new, grad) in enumerate(zip(before, model.trained, expected, strict=True)):
        pulled = pull * (old - anchor[k]) if anchor else 0.0
        assert torch.allclose(new, old - 0.3 * (grad + pulled), atol=1e-6)


def test_where_it_holds() -> None:
    def taken(module: nn.Module, *shape: int, stacked: bool = False) -> bool:
        return Layers.of(FlatModule(module), torch.zeros(shape), stacked=stacked) is not None

    assert taken(MODELS["relu"](), 5, 6)
    assert taken(MODELS["relu"](), 5, 2, 3)
    assert taken(MODELS["relu"](), 2, 5, 6, stacked=True)
    assert taken(MODELS["tanh, nested"](), 2, 5, 6, stacked=True)
    assert not taken(MODELS["tanh, nested"](), 5, 2, 3)  # a linear layer on unflattened samples
    assert not taken(nn.Sequential(nn.Linear(6, 3), nn.Softplus()), 5, 6)
    assert not taken(nn.Sequential(nn.Flatten(0), nn.Linear(6, 3)), 1, 6)
    assert not taken(nn.Sequential(nn.Tanh()), 5, 6)  # nothing to train


def test_frozen_and_shared_parameters_are_left_to_autograd() -> None:
    frozen = MODELS["relu"]()
    next(frozen.parameters()).requires_grad_(False)
    assert Layers.of(FlatModule(frozen), torch.zeros(5, 6)) is None
    layer = nn.Linear(6, 6)
    shared = FlatModule(nn.Sequential(layer, nn.Tanh(), layer))
    assert tied(shared)
    assert Layers.of(shared, torch.zeros(5, 6)) is None


def test_a_module_with_a_hook_is_left_alone() -> None:
    module = MODELS["relu"]()
    module[1].register_forward_hook(lambda *_: None)
    assert row(module) is None


@pytest.mark.parametrize("kind", ["parameter", "backward", "before"])
def test_who_listens_to_gradients_hears_them(kind: str) -> None:
    """One by one and together: by autograd, which calls the hook, and not by what is written out."""
    module, heard = MODELS["relu"](), []
    layer = next(one for one in module if isinstance(one, nn.Linear))
    if kind == "parameter":
        layer.weight.register_hook(lambda grad: heard.append(1))
    elif kind == "backward":
        layer.register_full_backward_hook(lambda *_: heard.append(1))
    else:
        layer.register_full_backward_pre_hook(lambda *_: heard.append(1))
    model = FlatModule(module)
    assert row(module) is None
    assert Layers.of(model, torch.zeros(5, 6)) is None
    assert group_size(8, model) == group_size("auto", model) == 1
