"""From a configuration's [data], [partition] and [split] tables to a federation."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, get_type_hints

from adafed.data import catalogue, selection
from adafed.data.base import Dataset, Federation
from adafed.data.embedded import digits
from adafed.data.federation import federate
from adafed.data.folder import FolderFederation
from adafed.data.imported import attribute, from_function
from adafed.data.synthetic import SyntheticFederation
from adafed.errors import AdafedError
from adafed.registry import coerced

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
        _given(name, partition, split)
        options = _checked(name, options, SyntheticFederation, fractions | {"seed": seed})
        return SyntheticFederation(**options, **fractions, seed=seed)
    if name == "folder":
        _given(name, partition, split)
        folder = options.pop("folder", None)
        if folder is None:
            raise AdafedError("data.folder is missing; it must be the folder that holds one npz file for each client")
        if not isinstance(folder, str):
            raise AdafedError(f"data.folder = {folder!r}: it must be the path of a folder, as text")
        options = _checked(name, options, FolderFederation, fractions | {"seed": seed, "folder": folder})
        return FolderFederation(folder, **options, **fractions, seed=seed)
    selecting = {key: options.pop(key) for key in selection.KEYS if key in options}
    dataset = _dataset(name, options, fractions, seed)
    if not isinstance(dataset, Dataset):
        if selecting:
            raise AdafedError(f"data.{next(iter(selecting))} has no meaning where the clients are given; leave it out")
        _given(name, partition, split)
        return dataset
    dataset = selection.selected(dataset, selecting, seed=seed)
    how = dict(DEFAULT_PARTITION if partition is None else partition)
    return federate(dataset, how.pop("name"), how, seed=seed, **split)


def _dataset(name: str, options: dict[str, Any], fractions: Mapping[str, Any], seed: int) -> Dataset | Federation:
    if name == "digits":
        return digits(**_checked(name, options, digits, {}))
    if name == "function":
        function = options.pop("function", None)
        if function is None:
            raise AdafedError("data.function is missing; it must be 'module:function'")
        classes = options.pop("classes", None)
        if classes is not None and (isinstance(classes, bool) or not isinstance(classes, int) or classes < 2):
            raise AdafedError(f"data.classes = {classes!r}: it must be a whole number of at least 2")
        _check_call(function, options)
        return from_function(function, options, classes=classes, **fractions, seed=seed)
    if name not in catalogue.names():
        raise AdafedError(f"data.name = {name!r} is unknown; there are {', '.join(names())}")
    known = (*catalogue.accepted(name), "dir", "download")
    for key in options:
        if key not in known:
            raise AdafedError(f"data.{key} is unknown; data.name = {name!r} has {', '.join(known)}")
    directory = coerced("data.dir", options.pop("dir", None), str | None)
    download = coerced("data.download", options.pop("download", False), bool)
    if "verify" in options:
        coerced("data.verify", options["verify"], bool)
    return catalogue.load(name, data_dir=directory, download=download, **options)


UNSPLIT = {"mode": "within", "stratified": False, "pool": "all", "limit": None}  # what [split] says of given clients


def _given(name: str, partition: Mapping[str, Any] | None, split: Mapping[str, Any]) -> None:
    for key, usual in UNSPLIT.items():
        if split.get(key, usual) != usual:
            raise AdafedError(
                f"split.{key} = {split[key]!r} has no meaning for data.name = {name!r}, whose clients are given; "
                "leave it out"
            )
    if partition is not None:
        raise AdafedError(f"[partition] has no meaning for data.name = {name!r}, whose clients are given; leave it out")


def _checked(name: str, options: Mapping[str, Any], maker: Any, reserved: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a [data] table in the types their maker wants; unknown and unfit ones are told by key."""
    known = [key for key in inspect.signature(maker).parameters if key not in reserved and key != "normalisation"]
    for key in options:
        if key not in known:
            listed = ", ".join(known) or "no options"
            raise AdafedError(f"data.{key} is unknown; data.name = {name!r} has {listed}")
    hints = get_type_hints(maker.__init__ if inspect.isclass(maker) else maker)
    return {key: coerced(f"data.{key}", value, hints[key]) for key, value in options.items()}


def _check_call(spec: Any, options: Mapping[str, Any]) -> None:
    """Whether the user's function can be called with these options."""
    if not isinstance(spec, str):
        raise AdafedError(f"data.function = {spec!r}: it must be 'module:function', as text")
    function = attribute(spec, "data.function")
    if not callable(function):
        raise AdafedError(f"data.function = {spec!r} is not a function.")
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:  # not written in Python: only the call itself will tell
        return
    named = [p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    known = [p.name for p in named]
    for key in options:
        if key not in known and not any(p.kind is p.VAR_KEYWORD for p in parameters):
            raise AdafedError(f"data.{key} is unknown; {spec} takes {', '.join(known) or 'no options'}")
    for p in named:
        if p.default is p.empty and p.name not in options:
            raise AdafedError(f"data.{p.name} is missing; {spec} needs it")
