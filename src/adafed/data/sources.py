"""From a configuration's [data], [partition] and [split] tables to a federation."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from adafed.data import catalogue, selection
from adafed.data.base import Dataset, Federation
from adafed.data.embedded import digits
from adafed.data.federation import federate
from adafed.data.folder import FolderFederation
from adafed.data.imported import from_function
from adafed.data.synthetic import SyntheticFederation
from adafed.errors import AdafedError

DEFAULT_PARTITION: dict[str, Any] = {"name": "dirichlet", "clients": 20, "beta": 0.5}


def names() -> tuple[str, ...]:
    """All that [data] name can be."""
    return ("digits", "synthetic", "folder", "function", *catalogue.names())


def open_federation(
    data: Mapping[str, Any], partition: Mapping[str, Any] | None, split: Mapping[str, Any], *, seed: int
) -> Federation:
    """`data` and `partition` hold a name and options; `split` the keys of [split].

    Data whose clients are given (synthetic, a folder, a function that returns a dictionary) takes no partition.
    """
    options = dict(data)
    name = options.pop("name")
    fractions = {key: split[key] for key in ("validation", "test")}
    if name == "synthetic":
        _given(name, partition)
        _check(name, options, SyntheticFederation, fractions | {"seed": seed})
        return SyntheticFederation(**options, **fractions, seed=seed)
    if name == "folder":
        _given(name, partition)
        folder = options.pop("folder", None)
        if folder is None:
            raise AdafedError("data.folder is missing; it must be the folder that holds one npz file for each client")
        _check(name, options, FolderFederation, fractions | {"seed": seed, "folder": folder})
        return FolderFederation(folder, **options, **fractions, seed=seed)
    selecting = {key: options.pop(key) for key in selection.KEYS if key in options}
    dataset = _dataset(name, options, fractions, seed)
    if not isinstance(dataset, Dataset):
        if selecting:
            raise AdafedError(f"data.{next(iter(selecting))} has no meaning where the clients are given; leave it out")
        _given(name, partition)
        return dataset
    dataset = selection.selected(dataset, selecting, seed=seed)
    how = dict(DEFAULT_PARTITION if partition is None else partition)
    return federate(dataset, how.pop("name"), how, seed=seed, **split)


def _dataset(name: str, options: dict[str, Any], fractions: Mapping[str, Any], seed: int) -> Dataset | Federation:
    if name == "digits":
        _check(name, options, digits, {})
        return digits(**options)
    if name == "function":
        function = options.pop("function", None)
        if function is None:
            raise AdafedError("data.function is missing; it must be 'module:function'")
        classes = options.pop("classes", None)
        return from_function(function, options, classes=classes, **fractions, seed=seed)
    if name not in catalogue.names():
        raise AdafedError(f"data.name = {name!r} is unknown; there are {', '.join(names())}")
    directory, download = options.pop("dir", None), options.pop("download", False)
    return catalogue.load(name, data_dir=directory, download=download, **options)


def _given(name: str, partition: Mapping[str, Any] | None) -> None:
    if partition is not None:
        raise AdafedError(f"[partition] has no meaning for data.name = {name!r}, whose clients are given; leave it out")


def _check(name: str, options: Mapping[str, Any], maker: Any, reserved: Mapping[str, Any]) -> None:
    """Unknown options of a [data] table, told by key."""
    known = [key for key in inspect.signature(maker).parameters if key not in reserved and key != "normalisation"]
    for key in options:
        if key not in known:
            listed = ", ".join(known) or "no options"
            raise AdafedError(f"data.{key} is unknown; data.name = {name!r} has {listed}")
