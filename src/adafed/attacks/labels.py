"""The lie in the data: liars train on flipped labels, so that their update is an honest one of wrong samples.

Validation and test labels stay as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch

from adafed.attacks.base import LIES, Lie, Sent
from adafed.data.base import ClientData, Federation, Split, sha256
from adafed.data.changed import ChangedFederation


@LIES.register("labels")
@dataclass(frozen=True)
class FlippedLabels(Lie):
    summary: ClassVar[str] = "training on flipped labels: class c is called C - 1 - c"
    in_data: ClassVar[bool] = True

    def tell(self, liars: Sequence[Sent], honest: Sequence[torch.Tensor], random: np.random.Generator) -> None:
        """Told already: what follows from it is sent as it is."""


class FlippedFederation(ChangedFederation):
    """`federation` with the training labels of some clients flipped."""

    def __init__(self, federation: Federation, flipped: frozenset[int]) -> None:
        self.flipped = flipped
        super().__init__(federation, sha256(federation.checksum, "flipped", np.array(sorted(flipped), dtype=np.int64)))

    def client(self, index: int) -> ClientData:
        data = self.federation.client(index)
        if index not in self.flipped:
            return data
        targets = (self.classes - 1 - data.train.targets).astype(np.int64)
        return replace(data, train=Split(data.train.inputs, targets))
