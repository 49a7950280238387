"""What a federation is to the rest of the package: a list of clients, each of which yields its own arrays.

Arrays stay in their published dtype (uint8 pixels, integer characters, float32 features); `Normalisation`
turns a batch into the float tensor the model sees, so that a memory-mapped image set costs no more memory
than the batch in hand.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch

Array = npt.NDArray[Any]
Indices = npt.NDArray[np.int64]


def sha256(*parts: str | Array) -> str:
    """One checksum over words and arrays: dtype, shape and content of each, in order."""
    digest = hashlib.sha256()
    for part in parts:
        if isinstance(part, str):
            digest.update(f"text {len(part.encode())} {part}\n".encode())
        else:
            # Little-endian, so that the checksum is the same on every machine.
            array = np.ascontiguousarray(part, dtype=part.dtype.newbyteorder("<"))
            digest.update(f"array {array.dtype.str} {part.shape}\n".encode())
            digest.update(array.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


@dataclass(frozen=True)
class Normalisation:
    """(x / 255 - mean) / std for each channel of a uint8 image; other dtypes pass (integers as int64)."""

    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)

    def __call__(self, inputs: Array) -> torch.Tensor:
        if inputs.dtype == np.uint8 and inputs.ndim == 4:
            shape = (1, len(self.mean), 1, 1)
            mean = torch.tensor(self.mean, dtype=torch.float32).reshape(shape)
            std = torch.tensor(self.std, dtype=torch.float32).reshape(shape)
            pixels = torch.from_numpy(np.ascontiguousarray(inputs)).to(torch.float32)
            return pixels.div_(255.0).sub_(mean).div_(std)
        if np.issubdtype(inputs.dtype, np.integer):
            return torch.from_numpy(np.ascontiguousarray(inputs, dtype=np.int64))
        return torch.from_numpy(np.ascontiguousarray(inputs, dtype=np.float32))


@dataclass(frozen=True)
class Dataset:
    """A published data set, whole: `inputs[i]` has class `targets[i]`.

    Images are uint8 of shape (n, channels, height, width); text is integer of shape (n, length); features are
    float32. `groups[i]` is the natural owner (writer, role) of sample i, or None where the set has none;
    `group_names` names them. `is_test[i]` tells the publisher's test part, or is None where there is none. With
    `wrong_labels` some targets of the other part are wrong, so that nobody should be tested on it.
    """

    name: str
    inputs: Array
    targets: npt.NDArray[np.int64]
    classes: int
    normalisation: Normalisation
    checksum: str  # sha256 over the content, recorded in every run
    groups: npt.NDArray[np.int64] | None = None
    group_names: tuple[str, ...] | None = None
    is_test: npt.NDArray[np.bool_] | None = None
    wrong_labels: bool = False

    def __len__(self) -> int:
        return len(self.targets)


@dataclass(frozen=True)
class Split:
    """Some samples of one client."""

    inputs: Array
    targets: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.targets)


@dataclass(frozen=True)
class ClientData:
    """One client's own data. Validation serves tuning, test serves reporting; neither is trained on."""

    train: Split
    validation: Split
    test: Split


class Federation(Protocol):
    """K clients. `client(i)` may read from disk or generate: callers hold on to few of them at a time."""

    @property
    def name(self) -> str: ...
    @property
    def ids(self) -> tuple[str, ...]: ...
    @property
    def classes(self) -> int: ...
    @property
    def input_shape(self) -> tuple[int, ...]: ...
    @property
    def normalisation(self) -> Normalisation: ...
    @property
    def train_sizes(self) -> npt.NDArray[np.int64]: ...
    @property
    def checksum(self) -> str: ...
    def client(self, index: int) -> ClientData: ...
