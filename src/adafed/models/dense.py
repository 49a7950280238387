"""Models without convolutions: softmax regression and the multilayer perceptron."""

from __future__ import annotations

import math
from itertools import pairwise

from torch import nn

from adafed.models.base import register, wholes


@register("logistic")
def logistic(input_shape: tuple[int, ...], classes: int) -> nn.Module:
    """Softmax regression: one linear layer."""
    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(input_shape), classes))


@register("mlp")
def mlp(input_shape: tuple[int, ...], classes: int, *, hidden: tuple[int, ...] = (200, 200)) -> nn.Module:
    """Linear layers with ReLU between them; the default is the paper's MLP for CIFAR-10."""
    sizes = (math.prod(input_shape), *wholes("hidden", hidden))
    layers: list[nn.Module] = [nn.Flatten()]
    for fan_in, fan_out in pairwise(sizes):
        layers += [nn.Linear(fan_in, fan_out), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(sizes[-1], classes))
