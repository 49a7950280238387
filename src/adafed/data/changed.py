"""A federation that is another one with something changed: the rest is the other's."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from adafed.data.base import Federation, Normalisation


class ChangedFederation:
    """What it says of itself is what `federation` says. Whoever derives from it says what changed: its `checksum`, and
    `client`."""

    def __init__(self, federation: Federation, checksum: str) -> None:
        self.federation = federation
        self.checksum = checksum

    @property
    def name(self) -> str:
        return self.federation.name

    @property
    def ids(self) -> tuple[str, ...]:
        return self.federation.ids

    @property
    def classes(self) -> int:
        return self.federation.classes

    @property
    def input_shape(self) -> tuple[int, ...]:
        return self.federation.input_shape

    @property
    def normalisation(self) -> Normalisation:
        return self.federation.normalisation

    @property
    def train_sizes(self) -> npt.NDArray[np.int64]:
        return self.federation.train_sizes
