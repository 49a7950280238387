"""Many small clients of equal shape trained at once: their models stacked, one batched product in place of many.

Worth it where a client's step is so small that calling torch costs more than the arithmetic; not for convolutions,
which a CPU batches badly. Sums are added up in another order than one by one, so results differ in the last bits: who
is trained together is therefore decided by the configuration and the cohort alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from adafed.client import Assignment, LocalTraining, Samples, descend, sample_losses
from adafed.layout import FlatModule
from adafed.randomness import permutations

SMALL = 200_000  # parameters; above it the arithmetic outweighs the calls
GROUP = 50  # clients in a batch: enough to hide the calls, and a cohort of 100 still feeds two workers
_ACTIVATIONS = (nn.ReLU, nn.Tanh, nn.Sigmoid)
_BATCHED = (nn.Linear, nn.Flatten, nn.Identity, nn.Sequential, *_ACTIVATIONS)


def group_size(together: str | int, model: FlatModule) -> int:
    """How many clients of a cohort are trained in one batch; 1 means one by one.

    A module with a `forward` of its own may do what vmap cannot, so it is asked for by number only.
    """
    plain = all(type(m) in _BATCHED for m in model.module.modules() if not list(m.children()))
    tied = len(list(model.module.named_parameters(remove_duplicate=False))) > len(model.parameters)
    if together == "never" or not plain or tied or model.statistics or len(model.trained) < len(model.parameters):
        return 1
    if isinstance(together, int):
        return together
    return GROUP if model.length <= SMALL and _row(model.module) is not None else 1


def groups(clients: Sequence[int], samples: Sequence[int], shares: Sequence[float], size: int) -> list[list[int]]:
    """The cohort's positions in groups: runs of clients with as many samples and steps, at most `size` of them."""
    if size == 1:
        return [[position] for position in range(len(clients))]
    same: dict[tuple[int, float], list[int]] = {}
    for position in range(len(clients)):
        same.setdefault((samples[position], shares[position]), []).append(position)
    return [alike[i : i + size] for alike in same.values() for i in range(0, len(alike), size)]


def train_together(
    model: FlatModule, how: LocalTraining, received: torch.Tensor, data: Samples, work: Sequence[Assignment]
) -> tuple[list[torch.Tensor], int, torch.Tensor]:
    """`data` is stacked, clients first. All clients' parameters after training, each stacked likewise; the steps each
    client did; and their running losses."""
    count, samples = data.targets.shape
    first = work[0]
    stacked = [view.expand(count, *view.shape).clone() for view in model.views(received.detach())]
    gradients = Layers.of(model.module, data.inputs) or Vectorised(model)
    own = torch.arange(count, device=received.device)[:, None]
    anchor = [parameter.clone() for parameter in stacked] if how.mu else None
    momenta: list[torch.Tensor] = []
    left = max(1, int(first.share * how.steps(samples)))
    done, running = 0, torch.zeros(count, dtype=torch.float64, device=received.device)
    model.module.train()
    for epoch in range(how.epochs):
        if how.batch_size is None:
            order = torch.arange(samples).expand(count, samples)
        else:
            clients = [one.client for one in work]
            order = torch.from_numpy(permutations(how.seed, first.round, clients, epoch, samples))
        for batch in torch.split(order.to(received.device), how.batch_size or samples, dim=1):
            if done == left:
                break
            grads, each = gradients(stacked, data.inputs[own, batch], data.targets[own, batch], how)
            running += each
            done += 1
            with torch.no_grad():
                descend(stacked, grads, momenta, anchor, how, first.lr, how.mu)
    return stacked, done, running / done


def mean_losses(outputs: torch.Tensor, targets: torch.Tensor, how: LocalTraining) -> torch.Tensor:
    """Each client's mean loss. The gradient of their sum holds every client's own."""
    return sample_losses(outputs.flatten(0, 1), targets.flatten(), how.loss).view(targets.shape).mean(dim=1)


class Layers:
    """Linear layers and activations in a row, their gradient written out: autograd would cost as much again."""

    def __init__(self, layers: list[nn.Module]) -> None:
        self.layers = layers

    @classmethod
    def of(cls, module: nn.Module, inputs: torch.Tensor) -> Layers | None:
        """None where the module is not such a row for these inputs (clients, samples, ...)."""
        layers = _row(module)
        if layers is None:
            return None
        flat = inputs.dim() == 3
        for layer in layers:
            if isinstance(layer, nn.Flatten):
                if (layer.start_dim, layer.end_dim) != (1, -1):
                    return None
                flat = True
            elif isinstance(layer, nn.Linear) and not flat:
                return None
        return cls([layer for layer in layers if not isinstance(layer, nn.Identity)])

    def __call__(
        self, parameters: list[torch.Tensor], x: torch.Tensor, y: torch.Tensor, how: LocalTraining
    ) -> tuple[list[torch.Tensor], torch.Tensor]:
        """The gradients, stacked like the parameters, and the clients' losses."""
        kept: list[tuple[nn.Module, torch.Tensor, torch.Tensor | None]] = []
        unused = iter(parameters)
        with torch.no_grad():
            for layer in self.layers:
                if isinstance(layer, nn.Linear):
                    weight = next(unused)
                    kept.append((layer, x, weight))
                    turned = weight.transpose(1, 2)
                    x = torch.bmm(x, turned) if layer.bias is None else torch.baddbmm(next(unused)[:, None], x, turned)
                elif isinstance(layer, nn.Flatten):
                    x = x.flatten(2)
                else:
                    x = layer(x)
                    kept.append((layer, x, None))
        outputs = x.detach().requires_grad_()
        losses = mean_losses(outputs, y, how)
        (error,) = torch.autograd.grad(losses.sum(), outputs)
        with torch.no_grad():
            return self._backward(kept, error), losses.detach()

    @staticmethod
    def _backward(
        kept: list[tuple[nn.Module, torch.Tensor, torch.Tensor | None]], error: torch.Tensor
    ) -> list[torch.Tensor]:
        grads: list[torch.Tensor] = []
        first = next(i for i, (_, _, weight) in enumerate(kept) if weight is not None)
        for i in range(len(kept) - 1, first - 1, -1):
            layer, value, weight = kept[i]
            if weight is not None:
                if layer.bias is not None:
                    grads.append(error.sum(dim=1))
                grads.append(torch.bmm(error.transpose(1, 2), value))
                if i > first:
                    error = torch.bmm(error, weight)
            elif isinstance(layer, nn.ReLU):
                error = torch.where(value > 0, error, 0.0)
            elif isinstance(layer, nn.Tanh):
                error = error * (1 - value * value)
            else:
                error = error * value * (1 - value)
        return grads[::-1]


def _row(module: nn.Module) -> list[nn.Module] | None:
    """The leaves of nested nn.Sequential in order, if it is made of nothing else."""
    if type(module) is nn.Sequential:
        rows = [_row(child) for child in module]
        return None if None in rows else [leaf for row in rows if row for leaf in row]
    return [module] if type(module) in _BATCHED else None


class Vectorised:
    """Any other module made of the same layers, by torch's vmap."""

    def __init__(self, model: FlatModule) -> None:
        self.module = model.module
        self.names = list(model.shapes)

    def __call__(
        self, parameters: list[torch.Tensor], x: torch.Tensor, y: torch.Tensor, how: LocalTraining
    ) -> tuple[list[torch.Tensor], torch.Tensor]:
        leaves = [parameter.detach().requires_grad_() for parameter in parameters]

        def forward(weights: dict[str, torch.Tensor], batch: torch.Tensor) -> torch.Tensor:
            outputs: torch.Tensor = torch.func.functional_call(self.module, weights, (batch,))
            return outputs

        outputs = torch.func.vmap(forward)(dict(zip(self.names, leaves, strict=True)), x)
        losses = mean_losses(outputs, y, how)
        return list(torch.autograd.grad(losses.sum(), leaves, materialize_grads=True)), losses.detach()
