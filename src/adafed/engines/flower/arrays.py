"""Flower's named arrays as one flat vector and back: first the parameters, then the statistics (BatchNorm).

The same order as `FlatModule`, so that both engines add up the same numbers in the same order.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from flwr.app import Array, ArrayRecord

from adafed.errors import AdafedError
from adafed.server.state_dicts import STATISTICS

HEADER = 2**14  # bytes before the numbers; numpy itself takes no longer ones
FLOATS = ("float32", "float64", "float16")


@dataclass(frozen=True)
class NamedArray:
    """One array of the model."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def count(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))


def numbers_in(array: Array, size: int) -> npt.NDArray[Any] | str:
    """What a stranger's array of so many bytes holds, or what is wrong with it. Its header may claim anything, so the
    length is looked at first, and whatever numpy says of the rest is a reason."""
    if len(array.data) > size + HEADER:
        return f"has {len(array.data):,} bytes for {size:,}"
    try:
        return np.asarray(array.numpy())
    except Exception as error:
        return f"cannot be read: {str(error).partition(chr(10))[0][:200]}"


@dataclass(frozen=True)
class Arrays:
    """How a model's arrays lie in the vector. `order` is the model's own, `untouched` its integer arrays."""

    order: tuple[str, ...]
    parameters: tuple[NamedArray, ...]
    statistics: tuple[NamedArray, ...]
    untouched: dict[str, npt.NDArray[Any]]

    @classmethod
    def of(cls, record: ArrayRecord, statistics: Collection[str] | None = None) -> Arrays:
        """Arrays named running_mean or running_var are statistics, unless `statistics` names others."""
        floating, untouched = [], {}
        for name, array in record.items():
            if array.dtype in FLOATS:
                floating.append(NamedArray(name, tuple(array.shape), array.dtype))
            else:
                untouched[name] = array.numpy()
        chosen = {one.name for one in floating if one.name.rsplit(".", 1)[-1] in STATISTICS}
        chosen = chosen if statistics is None else set(statistics)
        averaged = [one for one in floating if one.name in chosen]
        parameters = [one for one in floating if one not in averaged]
        for name in statistics or ():
            if name not in {one.name for one in floating}:
                raise AdafedError(f"statistics has {name!r}; it must name floating arrays among {', '.join(record)}")
        if not parameters:
            raise AdafedError(f"no parameter is left among {', '.join(record) or 'nothing'}; give at least one")
        return cls(tuple(record), tuple(parameters), tuple(averaged), untouched)

    @property
    def length(self) -> int:
        """How many numbers go through the rule."""
        return sum(one.count for one in self.parameters)

    def flat(self, record: ArrayRecord) -> torch.Tensor:
        """All floating numbers of a record that `faulty` finds nothing wrong with."""
        pieces = [torch.from_numpy(record[one.name].numpy()).reshape(-1) for one in self.parameters + self.statistics]
        return torch.cat(pieces)

    def record(self, flat: torch.Tensor) -> ArrayRecord:
        found: dict[str, npt.NDArray[Any]] = dict(self.untouched)
        start = 0
        for one in self.parameters + self.statistics:
            piece = flat[start : start + one.count].numpy(force=True).reshape(one.shape)
            found[one.name] = np.ascontiguousarray(piece, dtype=one.dtype).reshape(one.shape)
            start += one.count
        return ArrayRecord({name: Array(found[name]) for name in self.order})

    def faulty(self, record: ArrayRecord) -> str | None:
        """What is wrong with a client's record, or None. What it holds is looked at, not what it says it holds."""
        for one in self.parameters + self.statistics:
            if one.name not in record:
                return f"{one.name} is missing"
            array = numbers_in(record[one.name], one.count * np.dtype(one.dtype).itemsize)
            if isinstance(array, str):
                return f"{one.name} {array}"
            if array.shape != one.shape:
                return f"{one.name} has shape {array.shape} and must have {one.shape}"
            if str(array.dtype) != one.dtype:
                return f"{one.name} is {array.dtype} and must be {one.dtype}"
        return None
