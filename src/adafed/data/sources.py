"""From a configuration's [data], [partition] and [split] tables to a federation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from adafed.data import catalogue, selection
from adafed.data.base import Dataset, Federation
from adafed.data.embedded import digits
from adafed.data.federation import federate
from adafed.data.folder import FolderFederation
from adafed.data.function import from_function
from adafed.data.synthetic import SyntheticFederation
from adafed.errors import AdafedError
from adafed.registry import Registry

DEFAULT_PARTITION: dict[str, Any] = {"name": "dirichlet", "clients": 20, "beta": 0.5}


GIVEN = ("validation", "test", "seed", "normalisation")  # what a source is told by the rest of the configuration
DATA: Registry[Callable[..., Dataset | Federation]] = Registry("data set", "data", given=GIVEN)
DATA.register("digits")(digits)
DATA.register("synthetic")(SyntheticFederation)
DATA.register("folder")(FolderFederation)
for _name in catalogue.names():
    DATA.register(_name)(catalogue.loader(_name))
CLIENTS_GIVEN = ("synthetic", "folder")


@DATA.register("function")
def function(function: str, classes: int | None = None, **options: Any) -> Dataset | Federation:
    """What `open_federation` does itself, since the user's function may have options called as the given ones are."""
    return from_function(function, options, classes=classes)


def names() -> tuple[str, ...]:
    """All that [data] name can be."""
    return DATA.names()


def open_federation(
    data: Mapping[str, Any], partition: Mapping[str, Any] | None, split: Mapping[str, Any], *, seed: int
) -> Federation:
    """`data` and `partition` hold a name and options; `split` the keys of [split].

    Data whose clients are given (synthetic, a folder, a function that returns a dictionary) takes no partition.
    """
    options = dict(data)
    name = options.pop("name")
    selecting: dict[str, Any] = {}
    if name in CLIENTS_GIVEN:
        _given(name, partition, split)
    else:
        selecting = {key: options.pop(key) for key in selection.KEYS if key in options}
    told = {"validation": split["validation"], "test": split["test"], "seed": seed}
    own = name == "function" or ":" in name
    dataset = _own(name, options, told) if own else DATA.call(name, options, **told)
    if not isinstance(dataset, Dataset):
        if selecting:
            raise AdafedError(f"data.{next(iter(selecting))} has no meaning where the clients are given; leave it out")
        _given(name, partition, split)
        return dataset
    dataset = selection.selected(dataset, selecting, seed=seed)
    how = dict(DEFAULT_PARTITION if partition is None else partition)
    return federate(dataset, how.pop("name"), how, seed=seed, **split)


def require_usable_ids(federation: Federation) -> None:
    """Ids are written to files and tables; a file name that is not UTF-8 gives one that cannot be."""
    for client in federation.ids:
        if not isinstance(client, str) or not _writable(client):
            raise AdafedError(f"the client id {client!r} is no text that can be written as UTF-8; rename it")


def _writable(text: str) -> bool:
    return text.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in text)


def made_by_user(data: str, partition: str | None) -> bool:
    """Whether functions of the user's, by these names, decide who has which samples."""
    return data == "function" or ":" in data or ":" in (partition or "")


def _own(name: str, options: dict[str, Any], told: Mapping[str, Any]) -> Dataset | Federation:
    """From the user's function: `name = "function"` and `function = "module:attribute"`, or that as the name."""
    key, function = ("data.name", name) if ":" in name else ("data.function", options.pop("function", None))
    if function is None:
        raise AdafedError("data.function is missing; data.name = 'function' needs it")
    if not isinstance(function, str):
        raise AdafedError(f"data.function is {function!r}; it must be 'module:attribute', as text")
    classes = options.pop("classes", None)
    if classes is not None and (isinstance(classes, bool) or not isinstance(classes, int) or classes < 2):
        raise AdafedError(f"data.classes = {classes!r}: it must be a whole number of at least 2")
    return from_function(function, options, classes=classes, key=key, **told)


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
