"""A module's numbers as one flat vector: first the parameters, then the floating buffers (BatchNorm statistics).

Parameters and buffers become views of the vector, so that receiving a model is one copy and an update one subtraction.
Integer buffers (BatchNorm's count of batches) are not sent: every client starts from their first values.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn


class FlatModule:
    """A module bound to `vector`. `parameters` are views of it, in the module's own order; `trained` are those of them
    that are not frozen."""

    def __init__(self, module: nn.Module, device: str | torch.device = "cpu") -> None:
        self.module = module.to(device)
        named = list(module.named_parameters())
        floating = [(name, buffer) for name, buffer in module.named_buffers() if buffer.is_floating_point()]
        self.length = sum(parameter.numel() for _, parameter in named)
        self.statistics = sum(buffer.numel() for _, buffer in floating)
        self.shapes = {name: tuple(parameter.shape) for name, parameter in named}
        self.vector = torch.empty(self.length + self.statistics, device=device)
        start = 0
        for _, parameter in named:
            view = self.vector[start : start + parameter.numel()].view(parameter.shape)
            view.copy_(parameter.detach())
            parameter.data = view
            start += parameter.numel()
        for name, buffer in floating:
            view = self.vector[start : start + buffer.numel()].view(buffer.shape)
            view.copy_(buffer)
            owner, _, leaf = name.rpartition(".")
            module.get_submodule(owner)._buffers[leaf] = view
            start += buffer.numel()
        self.parameters: list[torch.Tensor] = [parameter for _, parameter in named]
        whole = [buffer for buffer in module.buffers() if not buffer.is_floating_point()]
        self._counts = [(buffer, buffer.clone()) for buffer in whole]
        self.trained = [parameter for parameter in self.parameters if parameter.requires_grad]

    def receive(self, vector: torch.Tensor) -> None:
        """Become the model that `vector` holds, with nothing left of what this module did before."""
        self.vector.copy_(vector)
        for buffer, first in self._counts:
            buffer.copy_(first)

    def views(self, flat: torch.Tensor) -> list[torch.Tensor]:
        """Another vector of the parameters' length, cut like `parameters`."""
        sizes = [parameter.numel() for parameter in self.parameters]
        pieces = torch.split(flat[: self.length], sizes)
        return [piece.view(parameter.shape) for piece, parameter in zip(pieces, self.parameters, strict=True)]

    def trained_views(self, flat: torch.Tensor) -> list[torch.Tensor]:
        """Of those, the ones of `trained`."""
        both = zip(self.views(flat), self.parameters, strict=True)
        return [view for view, parameter in both if parameter.requires_grad]


def initial_module(build: object, seed: int) -> nn.Module:
    """`build()` under its own seed."""
    assert callable(build)
    with seeded(seed):
        module = build()
    assert isinstance(module, nn.Module)
    return module


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """torch's random numbers from this seed, its global generator then as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield
