"""A client's own arrays, checked: what a federation of user data has in common, in memory or on disk."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from adafed.data.base import Array, ClientData, Normalisation, Split, sha256
from adafed.data.partition import checked_seed
from adafed.data.split import check_fractions, counts, within
from adafed.errors import AdafedError

SPLITTING = 104  # its stream of random numbers under a seed
SUFFIXES = ("", "_validation", "_test")
KEYS = tuple(axis + suffix for suffix in SUFFIXES for axis in "xy")


def kind_of(dtype: np.dtype[Any]) -> str:
    """What inputs of a type are taken for: bytes are images, and become shares of 255."""
    return "images of uint8" if dtype == np.uint8 else "floats" if dtype.kind == "f" else "whole numbers"


def check_layout(
    where: str, suffix: str, x: tuple[tuple[int, ...], np.dtype[Any]], y: tuple[tuple[int, ...], np.dtype[Any]]
) -> None:
    """Shapes and dtypes of one pair of arrays; `where` opens the sentence when they do not fit."""
    (x_shape, x_type), (y_shape, y_type) = x, y
    if x_type.kind not in "fiu":
        raise AdafedError(f"{where}: x{suffix} has dtype {x_type}; it must hold whole numbers or floats.")
    if y_type.kind not in "iu":
        raise AdafedError(f"{where}: y{suffix} has dtype {y_type}; classes are whole numbers.")
    if len(x_shape) < 2:
        raise AdafedError(f"{where}: x{suffix} has shape {x_shape}; it must be (samples, ...).")
    if 0 in x_shape[1:]:
        raise AdafedError(f"{where}: x{suffix} has shape {x_shape}; a sample must have at least one number.")
    if len(y_shape) != 1 or y_shape[0] != x_shape[0]:
        raise AdafedError(f"{where}: y{suffix} has shape {y_shape}, x{suffix} has {x_shape[0]} samples.")
    if suffix != "_validation" and x_shape[0] == 0:
        raise AdafedError(f"{where}: x{suffix} has no samples.")


def checked_arrays(where: str, suffix: str, x: Any, y: Any, classes: int | None) -> tuple[Array, npt.NDArray[np.int64]]:
    """One pair of arrays as the rest of the package takes them: finite inputs, classes counted from 0."""
    try:
        inputs, targets = np.asarray(x), np.asarray(y)
    except (ValueError, TypeError, OverflowError, RuntimeError) as error:
        raise AdafedError(f"{where}: x{suffix} or y{suffix} is not a rectangular array.") from error
    check_layout(where, suffix, (inputs.shape, inputs.dtype), (targets.shape, targets.dtype))
    if inputs.dtype.kind == "f":
        with np.errstate(over="ignore"):  # what overflows is refused below
            inputs = inputs.astype(np.float32, copy=False)
        if not np.isfinite(inputs).all():
            raise AdafedError(f"{where}: x{suffix} holds a number that is not finite in float32.")
    targets = targets.astype(np.int64, copy=False)
    if len(targets) and (targets.min() < 0 or (classes is not None and targets.max() >= classes)):
        upto = "up" if classes is None else f"to {classes - 1}"
        raise AdafedError(f"{where}: y{suffix} spans {targets.min()} to {targets.max()}; classes go from 0 {upto}.")
    return inputs, targets


def given_parts(where: str, keys: set[str]) -> tuple[bool, bool]:
    """Whether a client brings its own validation and its own test part; complains about keys that do not fit."""
    strange = sorted(keys - set(KEYS))
    if strange:
        raise AdafedError(f"{where}: {strange[0]!r} is none of the arrays {', '.join(KEYS)}.")
    for suffix in SUFFIXES:
        pair = {"x" + suffix, "y" + suffix}
        missing = sorted(pair - keys)
        if missing and (suffix == "" or len(missing) == 1):
            raise AdafedError(f"{where}: the array {missing[0]!r} is missing.")
    return "x_validation" in keys, "x_test" in keys


def split_client(
    arrays: Mapping[str, tuple[Array, npt.NDArray[np.int64]]], validation: float, test: float, seed: list[int]
) -> ClientData:
    """Parts the client brings are taken as they are; the others are held out of its x and y."""
    x, y = arrays[""]
    validation = 0.0 if "_validation" in arrays else validation
    test = 0.0 if "_test" in arrays else test
    (indices,) = within([np.arange(len(y))], y, validation=validation, test=test, seed=np.random.default_rng(seed))
    held = {"_validation": indices.validation, "_test": indices.test}
    parts = {
        suffix: Split(*arrays[suffix]) if suffix in arrays else Split(x[rows], y[rows]) for suffix, rows in held.items()
    }
    return ClientData(Split(x[indices.train], y[indices.train]), parts["_validation"], parts["_test"])


def train_size(samples: int, brings: tuple[bool, bool], validation: float, test: float) -> int:
    """How many of a client's samples `split_client` leaves for training."""
    return counts(samples, 0.0 if brings[0] else validation, 0.0 if brings[1] else test)[0]


class ArraysFederation:
    """Clients given as a dictionary from id to (x, y), or to a dictionary with the keys of a client's npz file."""

    def __init__(
        self,
        name: str,
        clients: Mapping[Any, Any],
        *,
        classes: int | None = None,
        validation: float = 0.1,
        test: float = 0.1,
        seed: int = 0,
        normalisation: Normalisation | None = None,
    ) -> None:
        if not clients:
            raise AdafedError(f"{name} has no clients.")
        check_fractions(validation, test)
        self._name = name
        self._clients: dict[str, dict[str, tuple[Array, npt.NDArray[np.int64]]]] = {}
        self._fractions = (validation, test)
        self._seed = checked_seed(seed)
        self._normalisation = normalisation or Normalisation()
        for client, given in clients.items():
            where = f"{name}, client {client}"
            if isinstance(given, tuple) and len(given) == 2:
                given = {"x": given[0], "y": given[1]}
            if not isinstance(given, Mapping):
                raise AdafedError(f"{where}: expected (x, y) or a dictionary of arrays, not {type(given).__name__}.")
            given_parts(where, set(given))
            self._clients[str(client)] = {
                suffix: checked_arrays(where, suffix, given["x" + suffix], given["y" + suffix], classes)
                for suffix in SUFFIXES
                if "x" + suffix in given
            }
        if len(self._clients) != len(clients):
            raise AdafedError(f"{name}: two clients have the same id when written as text.")
        # Of each shape, one that has it.
        shapes = {x.shape[1:]: client for client, arrays in self._clients.items() for x, _ in arrays.values()}
        if len(shapes) > 1:
            told = " and ".join(f"{shape} (client {client})" for shape, client in sorted(shapes.items()))
            raise AdafedError(f"{name}: inputs differ in shape, {told}.")
        (self._shape,) = shapes
        kinds = {
            kind_of(x.dtype): client for client, arrays in self._clients.items() for x, _ in arrays.values() if len(x)
        }
        if len(kinds) > 1:
            told = " and ".join(f"{kind} (client {client})" for kind, client in sorted(kinds.items()))
            raise AdafedError(f"{name}: inputs differ in kind, {told}; give all the same.")
        largest = max(int(y.max(initial=0)) for arrays in self._clients.values() for _, y in arrays.values())
        self._classes = largest + 1 if classes is None else classes

    @property
    def name(self) -> str:
        return self._name

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(self._clients)

    @property
    def classes(self) -> int:
        return self._classes

    @property
    def input_shape(self) -> tuple[int, ...]:
        return self._shape

    @property
    def normalisation(self) -> Normalisation:
        return self._normalisation

    @cached_property
    def train_sizes(self) -> npt.NDArray[np.int64]:
        sizes = [
            train_size(len(arrays[""][1]), ("_validation" in arrays, "_test" in arrays), *self._fractions)
            for arrays in self._clients.values()
        ]
        return np.array(sizes, dtype=np.int64)

    @cached_property
    def checksum(self) -> str:
        parts: list[str | Array] = [f"{self._fractions} {self._seed}"]
        for client, arrays in self._clients.items():
            for suffix, (x, y) in arrays.items():
                parts += [client, suffix, x, y]
        return sha256(*parts)

    def client(self, index: int) -> ClientData:
        arrays = self._clients[self.ids[index]]
        return split_client(arrays, *self._fractions, [self._seed, index % len(self._clients), SPLITTING])

    def train_labels(self, index: int) -> npt.NDArray[np.int64]:
        labels = {suffix: (y, y) for suffix, (_, y) in self._clients[self.ids[index]].items()}
        return split_client(labels, *self._fractions, [self._seed, index % len(self._clients), SPLITTING]).train.targets
