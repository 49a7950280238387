"""Many small clients of equal shape trained at once: their models stacked, one batched product in place of many.

Worth it where a client's step is so small that calling torch costs more than the arithmetic; not for convolutions,
which a CPU batches badly. Sums are added up in another order than one by one, so results differ in the last bits: who
is trained together is therefore decided by the configuration and the cohort alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from adafed.randomness import permutations
from adafed.training.dense import KNOWN, Layers, hooked, row, tied
from adafed.training.flat_module import FlatModule
from adafed.training.local import Assignment, LocalTraining, Samples, descend, picked
from adafed.training.losses import Loss, sample_losses

SMALL = 200_000  # parameters; above it the arithmetic outweighs the calls
GROUP = 50  # clients in a batch: enough to hide the calls, and a cohort of 100 still feeds two workers


def group_size(together: str | int, model: FlatModule) -> int:
    """How many clients of a cohort are trained in one batch; 1 means one by one.

    A module with a `forward` of its own may do what vmap cannot, so it is asked for by number only.
    """
    plain = all(type(m) in KNOWN for m in model.module.modules() if not list(m.children()))
    whole = not model.statistics and len(model.trained) == len(model.parameters)
    if together == "never" or not plain or tied(model) or not whole or any(map(hooked, model.module.modules())):
        return 1
    if isinstance(together, int):
        return together
    return GROUP if model.length <= SMALL and row(model.module) is not None else 1


def groups(clients: Sequence[int], samples: Sequence[int], shares: Sequence[float], size: int) -> list[list[int]]:
    """The cohort's positions in groups: runs of clients with as many samples and steps, at most `size` of them."""
    if size == 1:
        return [[position] for position in range(len(clients))]
    same: dict[tuple[int, float], list[int]] = {}
    for position in range(len(clients)):
        same.setdefault((samples[position], shares[position]), []).append(position)
    return [alike[i : i + size] for alike in same.values() for i in range(0, len(alike), size)]


def train_together(
    model: FlatModule,
    how: LocalTraining,
    received: torch.Tensor,
    data: Samples,
    work: Sequence[Assignment],
    pull: float = 0.0,
) -> tuple[list[torch.Tensor], int, torch.Tensor]:
    """`data` is stacked, clients first; `pull` weighs 1/2 ||theta - received||^2. All clients' parameters after
    training, each stacked likewise; the steps each client did; and their running losses."""
    count, samples = data.targets.shape
    first = work[0]
    stacked = [view.expand(count, *view.shape).clone() for view in model.views(received.detach())]
    layers = Layers.of(model, data.inputs, stacked=True)
    gradients = Vectorised(model).gradients if layers is None else layers.gradients
    first_rows = samples * torch.arange(count, device=received.device)[:, None]  # of each client, all in one table
    every = Samples(data.inputs.flatten(0, 1), data.targets.flatten())
    anchor = [parameter.clone() for parameter in stacked] if pull else None
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
            chosen = (first_rows + batch).flatten()
            inputs = picked(every.inputs, chosen).view(*batch.shape, *data.inputs.shape[2:])
            targets = picked(every.targets, chosen).view(batch.shape)
            done += 1
            if layers is not None and how.plain:
                running += layers.step(stacked, inputs, targets, how.loss, first.lr, anchor, pull)
                continue
            grads, each = gradients(stacked, inputs, targets, how.loss, targets.shape[1])
            running += each
            with torch.no_grad():
                descend(stacked, grads, momenta, anchor, how, first.lr, pull)
    return stacked, done, running / done


class Vectorised:
    """Any other module made of the same layers, by torch's vmap."""

    def __init__(self, model: FlatModule) -> None:
        self.module = model.module
        self.names = list(model.shapes)

    def gradients(
        self, parameters: list[torch.Tensor], x: torch.Tensor, y: torch.Tensor, loss: Loss, count: int
    ) -> tuple[list[torch.Tensor], torch.Tensor]:
        """The gradient of the sum of the clients' losses holds every client's own."""
        leaves = [parameter.detach().requires_grad_() for parameter in parameters]

        def forward(weights: dict[str, torch.Tensor], batch: torch.Tensor) -> torch.Tensor:
            outputs: torch.Tensor = torch.func.functional_call(self.module, weights, (batch,))
            return outputs

        outputs = torch.func.vmap(forward)(dict(zip(self.names, leaves, strict=True)), x)
        losses = sample_losses(outputs.flatten(0, 1), y.flatten(), loss).view(y.shape).sum(dim=1) / count
        return list(torch.autograd.grad(losses.sum(), leaves, materialize_grads=True)), losses.detach()
