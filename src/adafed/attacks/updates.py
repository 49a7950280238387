"""Lies in the update itself: scaled, turned round, empty, random, broken, another's, all the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch

from adafed.attacks.base import LIES, Lie, Sent
from adafed.errors import AdafedError
from adafed.registry import at_least


@LIES.register("scale")
@dataclass(frozen=True)
class Scaled(Lie):
    """The update is multiplied.

    Attributes:
        factor: -1 turns it round, so that the loss rises.
    """

    summary: ClassVar[str] = "the update times factor; -1 turns it round, so that the loss rises"
    factor: float = -1.0

    def __post_init__(self) -> None:
        if not -1e30 <= self.factor <= 1e30:
            raise AdafedError(f"scale.factor is {self.factor}; it must be a number between -1e30 and 1e30")

    def tell(self, liars: Sequence[Sent], honest: Sequence[torch.Tensor], random: np.random.Generator) -> None:
        for one in liars:
            one.update.mul_(self.factor)


@LIES.register("zero")
@dataclass(frozen=True)
class Zero(Lie):
    """An update of zeros."""

    summary: ClassVar[str] = "an update of zeros"

    def tell(self, liars: Sequence[Sent], honest: Sequence[torch.Tensor], random: np.random.Generator) -> None:
        for one in liars:
            one.update.zero_()


@LIES.register("random")
@dataclass(frozen=True)
class Random(Lie):
    """Random numbers in place of the update.

    Attributes:
        times: How many times as long as the client's own update.
    """

    summary: ClassVar[str] = "random numbers, times as long as the client's own update"
    times: float = 1.0

    def __post_init__(self) -> None:
        at_least("random.times", self.times, 0.0)

    def tell(self, liars: Sequence[Sent], honest: Sequence[torch.Tensor], random: np.random.Generator) -> None:
        for one in liars:
            drawn = torch.from_numpy(random.standard_normal(len(one.update), dtype=np.float32)).to(one.update)
            one.update.copy_(drawn * (self.times * one.update.norm() / drawn.norm()))


@LIES.register("nan")
@dataclass(frozen=True)
class NotANumber(Lie):
    """An update with a NaN in it."""

    summary: ClassVar[str] = "an update with a NaN in it"

    def tell(self, liars: Sequence[Sent], honest: Sequence[torch.Tensor], random: np.random.Generator) -> None:
        for one in liars:
            one.update[int(random.integers(len(one.update)))] = float("nan")


@LIES.register("copy")
@dataclass(frozen=True)
class Copied(Lie):
    """The update of the first honest client of the round, the same for all liars."""

    summary: ClassVar[str] = "the update of the first honest client of the round, the same for all liars"

    def tell(self, liars: Sequence[Sent], honest: Sequence[torch.Tensor], random: np.random.Generator) -> None:
        if honest:
            for one in liars:
                one.update.copy_(honest[0])


@LIES.register("same")
@dataclass(frozen=True)
class Same(Lie):
    """After other lies: colluders speak with one voice, and with the weight of many."""

    summary: ClassVar[str] = "all liars of the round send the first one's update"

    def tell(self, liars: Sequence[Sent], honest: Sequence[torch.Tensor], random: np.random.Generator) -> None:
        for one in liars[1:]:
            one.update.copy_(liars[0].update)
