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
_BATCHED = (nn.Linear, nn.Flatten, nn.ReLU, nn.Tanh, nn.Sigmoid, nn.Identity, nn.Sequential)


def group_size(together: str | int, model: FlatModule, how: LocalTraining) -> int:
    """How many clients of a cohort are trained in one batch; 1 means one by one."""
    plain = all(isinstance(m, _BATCHED) for m in model.module.modules() if not list(m.children()))
    if together == "never" or not plain or model.statistics:
        return 1
    if isinstance(together, int):
        return together
    return GROUP if model.length <= SMALL else 1


def groups(clients: Sequence[int], samples: Sequence[int], shares: Sequence[float], size: int) -> list[list[int]]:
    """The cohort's positions in groups: runs of clients with as many samples and steps, at most `size` of them."""
    if size == 1:
        return [[position] for position in range(len(clients))]
    same: dict[tuple[int, float], list[int]] = {}
    for position in range(len(clients)):
        same.setdefault((samples[position], shares[position]), []).append(position)
    return [alike[i : i + size] for alike in same.values() for i in range(0, len(alike), size)]


def train_together(
    model: FlatModule, how: LocalTraining, received: torch.Tensor, data: Sequence[Samples], work: Sequence[Assignment]
) -> tuple[torch.Tensor, int, torch.Tensor]:
    """All clients' parameters after training, K x d; the steps each did; and their running losses."""
    count, samples, first = len(data), len(data[0]), work[0]
    model.vector.copy_(received)
    model.module.train()
    names = list(model.shapes)
    stacked = [view.expand(count, *view.shape).clone().requires_grad_() for view in model.views(received.detach())]
    inputs = torch.stack([one.inputs for one in data])
    targets = torch.stack([one.targets for one in data])
    own = torch.arange(count)[:, None]

    def losses(parameters: list[torch.Tensor], x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """The sum over clients of each one's mean loss: its gradient holds every client's own."""
        bound = dict(zip(names, parameters, strict=True))

        def forward(weights: dict[str, torch.Tensor], batch: torch.Tensor) -> torch.Tensor:
            outputs: torch.Tensor = torch.func.functional_call(model.module, weights, (batch,))
            return outputs

        outputs = torch.func.vmap(forward)(bound, x)
        flat = sample_losses(outputs.flatten(0, 1), y.flatten(), how.loss)
        return flat.view(y.shape).mean(dim=1)

    anchor = [parameter.detach().clone() for parameter in stacked] if how.mu else None
    momenta: list[torch.Tensor] = []
    left = max(1, int(first.share * how.steps(samples)))
    done, running = 0, torch.zeros(count, dtype=torch.float64)
    for epoch in range(how.epochs):
        if how.batch_size is None:
            order = torch.arange(samples).expand(count, samples)
        else:
            clients = [one.client for one in work]
            order = torch.from_numpy(permutations(how.seed, first.round, clients, epoch, samples))
        for batch in torch.split(order, how.batch_size or samples, dim=1):
            if done == left:
                break
            each = losses(stacked, inputs[own, batch], targets[own, batch])
            grads = list(torch.autograd.grad(each.sum(), stacked))
            running += each.detach().double()
            done += 1
            with torch.no_grad():
                descend(stacked, grads, momenta, anchor, how, first.lr, how.mu)
    flat = torch.cat([parameter.detach().reshape(count, -1) for parameter in stacked], dim=1)
    return flat, done, running / done
