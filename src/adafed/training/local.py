"""One client's training in a round: lines 4-9 of Algorithm 1.

The update is g_k = theta_init - theta, as in line 9. What a method does beside plain SGD comes in as an `Objective`;
which method asks for what is the business of the client rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import NamedTuple

import torch

from adafed.randomness import client_word, permutations
from adafed.training.dense import Layers
from adafed.training.flat_module import FlatModule, seeded
from adafed.training.losses import Loss, sample_losses
from adafed.training.measuring import answers

GRADIENT_BATCH = 1024  # a full batch is taken in pieces of this size, whose gradients add up

Gradients = list[torch.Tensor]
"""One tensor for each trained parameter of the module, in its order."""
BatchGradients = Callable[[torch.Tensor], tuple[Gradients, float]]
"""From the indices of a batch's samples to the gradient of its loss, and that loss."""
Correction = Callable[[Gradients, int], Gradients]
"""From a gradient and the number of the local step (1, 2, ...) to the gradient that is stepped against. The gradient
must not be written to: autograd may have handed out one tensor for two parameters."""


@dataclass(frozen=True)
class LocalTraining:
    """How clients train; everything but the rate of the round is the same for all."""

    epochs: int
    batch_size: int | None  # None: the full batch, which is GD
    momentum: float
    weight_decay: float
    loss: Loss
    seed: int
    least: int = 1  # samples that the module can be trained on at once: 2 for most with BatchNorm

    @property
    def plain(self) -> bool:
        """SGD without momentum or weight decay."""
        return not (self.momentum or self.weight_decay)

    def steps(self, samples: int) -> int:
        return self.epochs * len(self.parts(samples, self.batch_size or samples))

    def parts(self, samples: int, size: int) -> list[int]:
        """How many samples are taken at a time; a rest that is too small to be trained on goes with those before it."""
        whole, rest = divmod(samples, size)
        if whole and 0 < rest < self.least:
            return [size] * (whole - 1) + [size + rest]
        return [size] * whole + ([rest] if rest else [])


class Assignment(NamedTuple):
    """What one client is asked to do in one round."""

    client: int
    round: int
    lr: float
    share: float = 1.0  # a straggler does this share of its steps, at least one


def picked(values: torch.Tensor, chosen: slice | torch.Tensor) -> torch.Tensor:
    """`values[chosen]`; whole rows are copied, where indexing by a tensor would go number by number."""
    return values[chosen] if isinstance(chosen, slice) else values.index_select(0, chosen.to(values.device))


@dataclass(frozen=True)
class Samples:
    """A client's training samples as the model takes them."""

    inputs: torch.Tensor
    targets: torch.Tensor

    def __len__(self) -> int:
        return self.targets.shape[0]  # len(tensor) goes through a slow door, and this is asked for every client

    @property
    def nbytes(self) -> int:
        return self.inputs.nbytes + self.targets.nbytes

    def visited(self, seed: int, work: Assignment) -> Samples:
        """For one visit of the client; others than plain samples may differ from visit to visit."""
        return self

    def begin(self, epoch: int) -> None:
        """Of a visit, as the trainer says; others than plain samples may differ from epoch to epoch."""

    def taken(self, chosen: slice | torch.Tensor) -> Samples:
        """Some of them, as a step of training takes them."""
        return Samples(picked(self.inputs, chosen), picked(self.targets, chosen))


@dataclass(frozen=True)
class Objective:
    """What is minimised beside the data's own loss: pull/2 ||theta - anchor||^2, known here because its step can be
    taken inside the product that makes the gradient; another gradient of a batch; and corrections of the gradient."""

    pull: float = 0.0
    gradients: BatchGradients | None = None
    corrections: Sequence[Correction] = ()

    @property
    def plain(self) -> bool:
        return self.gradients is None and not self.corrections


def batches(how: LocalTraining, work: Assignment, samples: int) -> Iterator[torch.Tensor]:
    """The indices of every local step, in order, cut short for a straggler."""
    left = max(1, int(work.share * how.steps(samples)))
    for epoch in range(how.epochs):
        if how.batch_size is None:
            order = torch.arange(samples)
        else:
            order = torch.from_numpy(permutations(how.seed, work.round, [work.client], epoch, samples)[0])
        for batch in torch.split(order, how.parts(samples, how.batch_size or samples)):
            if left == 0:
                return
            left -= 1
            yield batch


def pieces(data: Samples, batch: torch.Tensor, how: LocalTraining) -> Iterator[Samples]:
    """The batch's samples, GRADIENT_BATCH at a time; all of them in their own order, as then there is no need to
    gather them."""
    start = 0
    for count in how.parts(len(batch), GRADIENT_BATCH):
        stop = start + count
        yield data.taken(slice(start, stop) if len(batch) == len(data) else batch[start:stop])
        start = stop


def gradients(
    model: FlatModule, data: Samples, batch: torch.Tensor, how: LocalTraining, layers: Layers | None = None
) -> tuple[Gradients, float]:
    """The gradient of the batch's mean loss, and that loss; by `layers` where the module is written out."""

    def piecewise() -> Iterator[tuple[Gradients | None, torch.Tensor]]:
        for piece in pieces(data, batch, how):
            if layers is None:
                yield None, sample_losses(answers(model, piece.inputs), piece.targets, how.loss).sum() / len(batch)
            else:
                yield layers.gradients(model.trained, piece.inputs, piece.targets, how.loss, len(batch))

    return summed(model, piecewise())


def summed(model: FlatModule, parts: Iterator[tuple[Gradients | None, torch.Tensor]]) -> tuple[Gradients, float]:
    """The sum of the parts of a loss and of their gradients, which autograd makes where they are not given."""
    total: Gradients = []
    value = 0.0
    for given, mean in parts:
        grads = list(torch.autograd.grad(mean, model.trained, materialize_grads=True)) if given is None else given
        value += mean.item()
        total = list(torch._foreach_add(total, grads)) if total else grads
    return total, value


def descend(
    parameters: list[torch.Tensor],
    grads: Gradients,
    momenta: list[torch.Tensor],
    anchor: list[torch.Tensor] | None,
    how: LocalTraining,
    lr: float,
    pull: float,
) -> None:
    """One SGD step in place; `pull` weighs 1/2 ||theta - anchor||^2, which is FedProx's mu and Ditto's lambda.

    The gradients are not written to: autograd may have handed out one tensor for two parameters.
    """
    if how.weight_decay:
        grads = list(torch._foreach_add(grads, parameters, alpha=how.weight_decay))
    if anchor is not None:
        grads = list(torch._foreach_add(grads, torch._foreach_sub(parameters, anchor), alpha=pull))
    if how.momentum:
        momenta[:] = torch._foreach_add(grads, momenta, alpha=how.momentum) if momenta else grads
        grads = momenta
    torch._foreach_add_(parameters, grads, alpha=-lr)


class LocalTrainer:
    """Trains clients one after the other in one module."""

    def __init__(self, model: FlatModule, how: LocalTraining) -> None:
        self.model = model
        self.how = how

    def train(
        self,
        start: torch.Tensor,
        data: Samples,
        work: Assignment,
        objective: Objective,
        *,
        anchor: torch.Tensor | None = None,
        lr: float | None = None,
    ) -> tuple[int, float]:
        """Local steps from `start`, pulled towards `anchor` (by default back to `start`). Steps done, and the running
        loss; the result stands in the module, and torch's global generator is left as it was."""
        how, model = self.how, self.model
        lr, pull = work.lr if lr is None else lr, objective.pull
        model.receive(start)
        model.module.train()
        pulled_to = model.trained_views(start if anchor is None else anchor) if pull else None
        layers = Layers.of(model, data.inputs)
        written_out = layers is not None and how.plain and objective.plain
        momenta: list[torch.Tensor] = []
        steps, all_steps, running = 0, how.steps(len(data)), 0.0
        word = client_word(how.seed, work.round, work.client)
        with nullcontext() if layers is not None else seeded(word):  # any other module may draw random numbers
            for batch in batches(how, work, len(data)):
                data.begin(steps * how.epochs // all_steps)
                steps += 1
                if written_out and len(batch) <= GRADIENT_BATCH:
                    assert layers is not None
                    (one,) = pieces(data, batch, how)
                    loss = layers.step(model.trained, one.inputs, one.targets, how.loss, lr, pulled_to, pull)
                    running += loss.item()
                    continue
                if objective.gradients is None:
                    grads, value = gradients(model, data, batch, how, layers)
                else:
                    grads, value = objective.gradients(batch)
                running += value
                with torch.no_grad():
                    for correct in objective.corrections:
                        grads = correct(grads, steps)
                    descend(model.trained, grads, momenta, pulled_to, how, lr, pull)
        return steps, running / steps
