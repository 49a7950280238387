"""Linear layers and activations in a row, their gradient written out: autograd would cost as much again, and the step
of plain SGD can be taken inside the product that makes the gradient, which then is never stored.

One model takes samples x features; a stack of models, one a client, takes clients x samples x features.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import nn

from adafed.training.flat_module import FlatModule
from adafed.training.losses import Loss, losses_and_errors

_ACTIVATIONS = (nn.ReLU, nn.Tanh, nn.Sigmoid)
KNOWN = (nn.Linear, nn.Flatten, nn.Identity, nn.Sequential, *_ACTIVATIONS)


class _Kept(NamedTuple):
    """A layer with what its derivative needs: a linear layer's input, an activation's output."""

    layer: nn.Module
    value: torch.Tensor
    position: int  # of a linear layer's weight among the parameters; its bias follows


class Layers:
    """Computes with parameters that are handed in, in the module's own order."""

    def __init__(self, layers: list[nn.Module], flat: int) -> None:
        self.layers = layers
        self.flat = flat

    @classmethod
    def of(cls, model: FlatModule, inputs: torch.Tensor, *, stacked: bool = False) -> Layers | None:
        """None where the module is not such a row for these inputs, or not all of it is trained."""
        layers = row(model.module)
        if layers is None or tied(model) or len(model.trained) < len(model.parameters):
            return None
        first = 2 if stacked else 1  # the dimension of a sample's own numbers
        flat = inputs.dim() == first + 1
        for layer in layers:
            if isinstance(layer, nn.Flatten):
                if (layer.start_dim, layer.end_dim) != (1, -1):
                    return None
                flat = True
            elif isinstance(layer, nn.Linear) and not flat:
                return None
        if not any(isinstance(layer, nn.Linear) for layer in layers):
            return None
        return cls([layer for layer in layers if not isinstance(layer, nn.Identity)], first)

    @torch.no_grad()
    def gradients(
        self, parameters: list[torch.Tensor], x: torch.Tensor, y: torch.Tensor, loss: Loss, count: int
    ) -> tuple[list[torch.Tensor], torch.Tensor]:
        """Of the sum of the losses over `count`: the gradients in the parameters' order, and the value."""
        grads: dict[int, torch.Tensor] = {}
        kept, outputs = self._forward(parameters, x)
        losses, errors = losses_and_errors(outputs, y, loss)
        for one, error in self._backward(kept, parameters, errors / count):
            grads[one.position] = error.mT @ one.value
            if one.layer.bias is not None:
                grads[one.position + 1] = error.sum(dim=-2)
        return [grads[position] for position in range(len(parameters))], losses.sum(dim=-1) / count

    @torch.no_grad()
    def step(
        self,
        parameters: list[torch.Tensor],
        x: torch.Tensor,
        y: torch.Tensor,
        loss: Loss,
        lr: float,
        anchor: list[torch.Tensor] | None = None,
        pull: float = 0.0,
    ) -> torch.Tensor:
        """One step of SGD on the mean loss plus pull/2 ||theta - anchor||^2, in place, and the mean loss."""

        def pulled(position: int) -> torch.Tensor:
            parameter = parameters[position]
            return parameter if anchor is None else parameter.sub_(parameter - anchor[position], alpha=lr * pull)

        kept, outputs = self._forward(parameters, x)
        losses, errors = losses_and_errors(outputs, y, loss)
        for one, error in self._backward(kept, parameters, errors / y.shape[-1]):
            weight = pulled(one.position)
            add = weight.addmm_ if weight.dim() == 2 else weight.baddbmm_
            add(error.mT, one.value, alpha=-lr)
            if one.layer.bias is not None:
                pulled(one.position + 1).sub_(error.sum(dim=-2), alpha=lr)
        return losses.mean(dim=-1)

    def _forward(self, parameters: list[torch.Tensor], x: torch.Tensor) -> tuple[list[_Kept], torch.Tensor]:
        kept: list[_Kept] = []
        position = 0
        for layer in self.layers:
            if isinstance(layer, nn.Linear):
                kept.append(_Kept(layer, x, position))
                turned = parameters[position].mT
                if layer.bias is None:
                    x = x @ turned
                else:
                    add = torch.addmm if x.dim() == 2 else torch.baddbmm
                    x = add(parameters[position + 1].unsqueeze(-2), x, turned)
                position += 1 if layer.bias is None else 2
            elif isinstance(layer, nn.Flatten):
                x = x.flatten(self.flat)
            else:
                x = torch.relu(x) if isinstance(layer, nn.ReLU) else layer(x)  # in place it would write to the data
                kept.append(_Kept(layer, x, -1))
        return kept, x

    @staticmethod
    def _backward(
        kept: list[_Kept], parameters: list[torch.Tensor], error: torch.Tensor
    ) -> Iterator[tuple[_Kept, torch.Tensor]]:
        """Each linear layer from the last to the first with the derivative by its outputs. A layer's parameters may be
        changed once it is yielded: nothing before it looks at them."""
        first = next(i for i, one in enumerate(kept) if one.position >= 0)
        for i in range(len(kept) - 1, first - 1, -1):
            one = kept[i]
            if one.position >= 0:
                below = error @ parameters[one.position] if i > first else error
                yield one, error
                error = below
            elif isinstance(one.layer, nn.ReLU):
                error = torch.ops.aten.threshold_backward(error, one.value, 0)  # torch.where is far slower
            elif isinstance(one.layer, nn.Tanh):
                error = error * (1 - one.value * one.value)
            else:
                error = error * one.value * (1 - one.value)


def row(module: nn.Module) -> list[nn.Module] | None:
    """The leaves of nested nn.Sequential in order, if it is made of nothing else and nobody listens in with hooks."""
    if type(module) not in KNOWN or hooked(module):
        return None
    if type(module) is not nn.Sequential:
        return [module]
    rows = [row(child) for child in module]
    return None if None in rows else [leaf for leaves in rows if leaves for leaf in leaves]


def hooked(module: nn.Module) -> bool:
    """Whether somebody listens in on the module itself or on the gradients of its own parameters."""
    return bool(
        module._forward_hooks or module._forward_pre_hooks or module._backward_hooks or module._backward_pre_hooks
    ) or any(one is not None and one._backward_hooks for one in module._parameters.values())


def leaves_inputs(module: nn.Module) -> bool:
    """Whether it surely does not write to what it is given: known layers in a row, none in place."""
    layers = row(module)
    return layers is not None and not any(getattr(layer, "inplace", False) for layer in layers)


def tied(model: FlatModule) -> bool:
    """Whether two layers share a parameter."""
    return len(list(model.module.named_parameters(remove_duplicate=False))) > len(model.parameters)
