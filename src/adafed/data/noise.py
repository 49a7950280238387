"""Wrong labels put in on purpose: some clients, by chance, have a share of their training labels drawn anew.

This is how FedCorr's authors (Xu et al., CVPR 2022) make CIFAR noisy. Validation and test labels stay as they are, so
that accuracies mean what they say.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from adafed.data.base import ClientData, Federation, Split, sha256
from adafed.data.changed import ChangedFederation

LEVELS, LABELS = 109, 110  # streams of random numbers under one seed


class NoisyFederation(ChangedFederation):
    """`federation` with a client's labels wrong with probability `clients`; a label of such a client is drawn anew,
    from all classes alike, with a probability that is itself uniform between `level` and 1."""

    def __init__(self, federation: Federation, *, clients: float, level: float, seed: int) -> None:
        self.seed = seed
        chance = np.random.default_rng([seed, 0, LEVELS]).random((len(federation.ids), 2))
        drawn = level + (1.0 - level) * chance[:, 1]
        self.levels: npt.NDArray[np.float64] = np.where(chance[:, 0] < clients, drawn, 0.0)
        super().__init__(federation, sha256(federation.checksum, "noise", self.levels, f"{seed}"))

    def client(self, index: int) -> ClientData:
        data = self.federation.client(index)
        return replace(data, train=Split(data.train.inputs, self.given_labels(index, data.train.targets)))

    def given_labels(self, index: int, right: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """What a client with these labels is given."""
        random = np.random.default_rng([self.seed, index, LABELS])
        wrong = random.random(len(right)) < self.levels[index]
        return np.where(wrong, random.integers(self.classes, size=len(right)), right).astype(np.int64)
