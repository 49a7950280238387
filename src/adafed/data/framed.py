"""Images of which a model sees the middle: the rest is there to be cut from at random while training."""

from __future__ import annotations

import numpy as np

from adafed.data.base import Array, ClientData, Federation, Split, sha256
from adafed.data.changed import ChangedFederation
from adafed.errors import AdafedError


class FramedFederation(ChangedFederation):
    """`federation` with the middle `side` x `side` pixels of every image; it itself still has all of them."""

    def __init__(self, federation: Federation, side: int) -> None:
        shape = federation.input_shape
        if len(shape) != 3 or side > min(shape[1:]):
            most = f"at most {min(shape[1:])}" if len(shape) == 3 else "left out"
            raise AdafedError(f"augment.crop = {side}: inputs have the shape {shape}, so it must be {most}")
        self.side = side
        super().__init__(federation, sha256(federation.checksum, f"framed {side}"))

    @property
    def input_shape(self) -> tuple[int, ...]:
        return (self.federation.input_shape[0], self.side, self.side)

    def client(self, index: int) -> ClientData:
        data = self.federation.client(index)
        return ClientData(
            *(Split(self._middle(one.inputs), one.targets) for one in (data.train, data.validation, data.test))
        )

    def _middle(self, images: Array) -> Array:
        top, left = ((length - self.side) // 2 for length in images.shape[2:])
        return np.ascontiguousarray(images[:, :, top : top + self.side, left : left + self.side])
