"""One client's work in a round: lines 4-9 of Algorithm 1, FedProx's term, Ditto's personal model, and the measuring.

The update is g_k = theta_init - theta, as in line 9. Losses are means over the client's training samples.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from adafed.randomness import client_word, permutations
from adafed.training.dense import Layers, leaves_inputs
from adafed.training.flat_module import FlatModule, seeded
from adafed.training.losses import Loss, sample_losses

EVALUATION_BATCH = 512
GRADIENT_BATCH = 1024  # a full batch is taken in pieces of this size, whose gradients add up


@dataclass(frozen=True)
class LocalTraining:
    """How clients train; everything but the rate of the round is the same for all."""

    epochs: int
    batch_size: int | None  # None: the full batch, which is GD
    momentum: float
    weight_decay: float
    mu: float
    loss: Loss
    seed: int
    mixup: float = 0.0  # a of Beta(a, a)

    @property
    def plain(self) -> bool:
        """SGD without momentum or weight decay."""
        return not (self.momentum or self.weight_decay)

    def steps(self, samples: int) -> int:
        batch = self.batch_size or samples
        return self.epochs * -(-samples // batch)


class Assignment(NamedTuple):
    """What one client is asked to do in one round."""

    client: int
    round: int
    lr: float
    share: float = 1.0  # a straggler does this share of its steps, at least one
    pull: float = 0.0  # FedCorr: adds pull ||theta - theta_init||, not squared


@dataclass(frozen=True)
class Samples:
    """A client's training samples as the model takes them."""

    inputs: torch.Tensor
    targets: torch.Tensor

    def __len__(self) -> int:
        return self.targets.shape[0]  # len(tensor) goes through a slow door, and this is asked for every client


class Measured(NamedTuple):
    loss: float
    accuracy: float


class Suspicion(NamedTuple):
    """What FedCorr asks of the model a client has trained: how its answers lie, and each sample's loss."""

    dimension: float
    losses: list[float]


class Predicted(NamedTuple):
    """The global model's answers on a client's training samples, and the labels these have now."""

    client: int
    answers: list[int]
    confidences: list[float]
    labels: list[int]


class Report(NamedTuple):
    """What a client tells the server beside its update."""

    client: int
    samples: int
    steps: int
    running: float  # mean of the loss over all local steps
    before: Measured | None
    after: Measured | None
    suspicion: Suspicion | None = None

    def told_loss(self, which: str) -> float:
        if which == "running":
            return self.running
        measured = self.before if which == "before" else self.after
        assert measured is not None, f"the loss {which} training was not measured"
        return measured.loss


@torch.no_grad()
def measure(model: FlatModule, inputs: torch.Tensor, targets: torch.Tensor, loss: Loss) -> torch.Tensor:
    """For every sample its loss and whether it was right, n x 2 in float64, with the model as it stands."""
    model.module.eval()
    pieces = []
    for start in range(0, len(targets), EVALUATION_BATCH):
        chosen = slice(start, start + EVALUATION_BATCH)
        outputs = answers(model, inputs[chosen])
        right = outputs.argmax(dim=-1) == targets[chosen]
        pieces.append(torch.stack([sample_losses(outputs, targets[chosen], loss).double(), right.double()], dim=1))
    return torch.cat(pieces) if pieces else torch.zeros(0, 2, dtype=torch.float64)


def answers(model: FlatModule, inputs: torch.Tensor) -> torch.Tensor:
    """The module's outputs. One that may write to what it is given has a copy: samples are kept between rounds."""
    outputs: torch.Tensor = model.module(inputs if leaves_inputs(model.module) else inputs.clone())
    return outputs


def summaries(measured: torch.Tensor, counts: Sequence[int]) -> list[Measured | None]:
    """The mean of each client's samples, which lie one client after the other; None for a client without any."""
    if len(counts) > 1 and counts[0] and min(counts) == max(counts):
        means = measured.view(len(counts), counts[0], 2).mean(dim=1).tolist()
    else:
        means = [scores.mean(dim=0).tolist() for scores in torch.split(measured, list(counts))]
    return [Measured(*mean) if count else None for mean, count in zip(means, counts, strict=True)]


def batches(how: LocalTraining, work: Assignment, samples: int) -> Iterator[torch.Tensor]:
    """The indices of every local step, in order, cut short for a straggler."""
    left = max(1, int(work.share * how.steps(samples)))
    for epoch in range(how.epochs):
        if how.batch_size is None:
            order = torch.arange(samples)
        else:
            order = torch.from_numpy(permutations(how.seed, work.round, [work.client], epoch, samples)[0])
        for batch in torch.split(order, how.batch_size or samples):
            if left == 0:
                return
            left -= 1
            yield batch


def pieces(data: Samples, batch: torch.Tensor) -> Iterator[Samples]:
    """The batch's samples, GRADIENT_BATCH at a time; all of them in their own order, as then there is no need to
    gather them."""
    for start in range(0, len(batch), GRADIENT_BATCH):
        stop = start + GRADIENT_BATCH
        chosen = slice(start, stop) if len(batch) == len(data) else batch[start:stop]
        yield Samples(data.inputs[chosen], data.targets[chosen])


def gradients(
    model: FlatModule, data: Samples, batch: torch.Tensor, loss: Loss, layers: Layers | None = None
) -> tuple[list[torch.Tensor], float]:
    """The gradient of the batch's mean loss, and that loss; by `layers` where the module is written out."""
    total: list[torch.Tensor] = []
    value = 0.0
    for piece in pieces(data, batch):
        if layers is None:
            mean = sample_losses(answers(model, piece.inputs), piece.targets, loss).sum() / len(batch)
            grads = list(torch.autograd.grad(mean, model.trained, materialize_grads=True))
        else:
            grads, mean = layers.gradients(model.trained, piece.inputs, piece.targets, loss, len(batch))
        value += mean.item()
        total = list(torch._foreach_add(total, grads)) if total else grads
    return total, value


def mixed_gradients(
    model: FlatModule, data: Samples, batch: torch.Tensor, how: LocalTraining, random: np.random.Generator
) -> tuple[list[torch.Tensor], float]:
    """The same with mixup (Zhang et al. 2018): every sample blended with another of the batch, and so its loss."""
    share = float(random.beta(how.mixup, how.mixup))
    other = batch[torch.from_numpy(random.permutation(len(batch)))]
    total: list[torch.Tensor] = []
    value = 0.0
    for start in range(0, len(batch), GRADIENT_BATCH):
        one, two = batch[start : start + GRADIENT_BATCH], other[start : start + GRADIENT_BATCH]
        outputs = model.module(share * data.inputs[one] + (1 - share) * data.inputs[two])
        first, second = (sample_losses(outputs, data.targets[chosen], how.loss) for chosen in (one, two))
        mean = (share * first + (1 - share) * second).sum() / len(batch)
        grads = list(torch.autograd.grad(mean, model.trained, materialize_grads=True))
        value += mean.item()
        total = list(torch._foreach_add(total, grads)) if total else grads
    return total, value


def pulled_back(
    grads: list[torch.Tensor], parameters: list[torch.Tensor], anchor: list[torch.Tensor], pull: float
) -> list[torch.Tensor]:
    """With the gradient of pull ||theta - anchor||, FedCorr's term for clients with wrong labels."""
    away = torch._foreach_sub(parameters, anchor)
    length = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(away))).item()
    return list(torch._foreach_add(grads, away, alpha=pull / length)) if length else grads


def descend(
    parameters: list[torch.Tensor],
    grads: list[torch.Tensor],
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

    def train(self, received: torch.Tensor, data: Samples, work: Assignment) -> tuple[int, float]:
        """Local steps from the received model, pulled back to it by FedProx's mu. Steps done, and the running loss."""
        anchor = received if self.how.mu or work.pull else None
        return self._run(received, anchor, data, work, work.lr, self.how.mu, work.pull)

    def personalise(
        self,
        personal: torch.Tensor,
        received: torch.Tensor,
        data: Samples,
        work: Assignment,
        strength: float,
        lr: float,
    ) -> torch.Tensor:
        """Ditto: v <- v - lr (grad F(v) + lambda (v - theta_t)), over the same batches as the global model's."""
        self._run(personal, received, data, work, lr, strength)
        return self.model.vector.clone()

    def _run(
        self,
        start: torch.Tensor,
        anchor: torch.Tensor | None,
        data: Samples,
        work: Assignment,
        lr: float,
        pull: float,
        norm_pull: float = 0.0,
    ) -> tuple[int, float]:
        """The result stands in the module; torch's global generator is left as it was."""
        how, model = self.how, self.model
        model.receive(start)
        model.module.train()
        pulled_to = None if anchor is None else self._trained(anchor)
        layers = Layers.of(model, data.inputs)
        word = client_word(how.seed, work.round, work.client)
        mixing = np.random.default_rng(word) if how.mixup else None
        written_out = layers is not None and how.plain and mixing is None and not norm_pull
        epoch = how.steps(len(data)) // how.epochs
        momenta: list[torch.Tensor] = []
        steps, running = 0, 0.0
        with nullcontext() if layers is not None else seeded(word):  # any other module may draw random numbers
            for batch in batches(how, work, len(data)):
                steps += 1
                if written_out and len(batch) <= GRADIENT_BATCH:
                    assert layers is not None
                    (one,) = pieces(data, batch)
                    loss = layers.step(model.trained, one.inputs, one.targets, how.loss, lr, pulled_to, pull)
                    running += loss.item()
                    continue
                if mixing is None:
                    grads, value = gradients(model, data, batch, how.loss, layers)
                else:
                    grads, value = mixed_gradients(model, data, batch, how, mixing)
                running += value
                with torch.no_grad():
                    if norm_pull and pulled_to is not None and (steps - 1) % epoch:  # not for an epoch's first batch
                        grads = pulled_back(grads, model.trained, pulled_to, norm_pull)
                    descend(model.trained, grads, momenta, pulled_to if pull else None, how, lr, pull)
        return steps, running / steps

    def _trained(self, vector: torch.Tensor) -> list[torch.Tensor]:
        both = zip(self.model.views(vector), self.model.parameters, strict=True)
        return [view for view, parameter in both if parameter.requires_grad]
