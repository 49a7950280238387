"""Lies about the few numbers beside the update: the loss, the sample count, the accuracy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch

from adafed.attacks.base import LIES, Lie, Sent
from adafed.registry import at_least, below

MOST_SAMPLES = 2**53


@LIES.register("loss")
@dataclass(frozen=True)
class LyingLoss(Lie):
    """Another loss than the true one.

    Attributes:
        factor: What it is multiplied with: above 1 inflated, below 1 deflated.
    """

    summary: ClassVar[str] = "the reported loss times factor: above 1 inflated, below 1 deflated"
    factor: float = 100.0

    def __post_init__(self) -> None:
        at_least("loss.factor", self.factor, 0.0)

    def tell(self, liars: Sequence[Sent], honest: Sequence[torch.Tensor], random: np.random.Generator) -> None:
        for one in liars:
            one.losses = {kind: self.factor * loss for kind, loss in one.losses.items()}


@LIES.register("samples")
@dataclass(frozen=True)
class LyingSamples(Lie):
    """Another sample count than the true one.

    Attributes:
        factor: What it is multiplied with.
    """

    summary: ClassVar[str] = "the reported sample count times factor"
    factor: float = 100.0

    def __post_init__(self) -> None:
        at_least("samples.factor", self.factor, 0.0)

    def tell(self, liars: Sequence[Sent], honest: Sequence[torch.Tensor], random: np.random.Generator) -> None:
        for one in liars:
            one.samples = int(min(max(self.factor * one.samples, 1.0), MOST_SAMPLES))


@LIES.register("accuracy")
@dataclass(frozen=True)
class LyingAccuracy(Lie):
    """Another accuracy than the true one.

    Attributes:
        value: What is told, whatever it is; low ones ask for attention.
    """

    summary: ClassVar[str] = "the reported accuracy, whatever it is, is told as value; low ones ask for attention"
    value: float = 0.0

    def __post_init__(self) -> None:
        below("accuracy.value", self.value, 1.0000001)

    def tell(self, liars: Sequence[Sent], honest: Sequence[torch.Tensor], random: np.random.Generator) -> None:
        for one in liars:
            one.accuracy = None if one.accuracy is None else self.value
