"""Mixup (Zhang et al. 2018): every sample is blended with another of its batch, and so is its loss."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from adafed.client_rules.base import LARGEST, Begun, ClientRule, Orders, Visit, register
from adafed.errors import AdafedError
from adafed.randomness import client_word
from adafed.registry import at_least
from adafed.training.local import GRADIENT_BATCH, Gradients, Samples, summed
from adafed.training.losses import sample_losses


@register("mixup")
@dataclass(frozen=True)
class Mixup(ClientRule):
    """A batch has one blending share, drawn from Beta(a, a): small a leaves samples nearly alone, 1 blends evenly.

    Attributes:
        a: Of Beta(a, a), from which a batch's blending share is drawn; `local.mixup` in a configuration.
    """

    summary = "samples blended with others of their batch, by shares from Beta(a, a)"
    source = "Zhang et al. 2018"
    shorthand = ("local.mixup", "a")
    makes_gradients = True
    a: float = 1.0

    def __post_init__(self) -> None:
        at_least("mixup.a", self.a, 0.0, strictly=True, most=LARGEST)

    def samples(self, data: Samples, orders: Orders) -> Samples:
        if not data.inputs.is_floating_point():
            raise AdafedError(
                f"local.mixup = {self.a} blends inputs, and those of this data set are letters or words; it must be 0, "
                "and mixup must not be among client.rules"
            )
        return data

    def begin(self, visit: Visit) -> Begun:
        model, data, how = visit.model, visit.data, visit.trainer.how
        random = np.random.default_rng(client_word(how.seed, visit.work.round, visit.work.client))

        def blended(batch: torch.Tensor) -> Iterator[tuple[None, torch.Tensor]]:
            share = float(random.beta(self.a, self.a))
            other = batch[torch.from_numpy(random.permutation(len(batch)))]
            parts = how.parts(len(batch), GRADIENT_BATCH)
            for one, two in zip(torch.split(batch, parts), torch.split(other, parts), strict=True):
                ours, theirs = data.taken(one), data.taken(two)
                outputs = model.module(share * ours.inputs + (1 - share) * theirs.inputs)
                first, second = (sample_losses(outputs, those.targets, how.loss) for those in (ours, theirs))
                yield None, (share * first + (1 - share) * second).sum() / len(batch)

        def gradients(batch: torch.Tensor) -> tuple[Gradients, float]:
            return summed(model, blended(batch))

        return Begun(gradients=gradients)

    @property
    def label(self) -> str:
        return ""
