"""Every data set by name: is it here, fetch it if allowed, load it.

load("cifar10")                       from ADAFED_DATA or ~/.cache/adafed
load("fashion", "/data", download=True)
load("cifar10n", kind="worse")        options are those of the set's own `load`
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adafed.data import cifar, cinic, clothing, fashion, femnist, label_noise, shakespeare, store, tinyimagenet
from adafed.data.base import Dataset
from adafed.data.download import Remote, fetch, unpack
from adafed.errors import AdafedError
from adafed.registry import offered, signature, unknown_name, unknown_option


@dataclass(frozen=True)
class Entry:
    """How one data set is found, fetched and read."""

    present: Callable[[Path], object]
    load: Callable[..., Dataset]
    missing: Callable[[Path], str]
    remotes: tuple[Remote, ...] = ()  # a single archive, or the files themselves
    archives: tuple[tuple[Remote, str], ...] = ()  # archives that count as present, and the folder each unpacks to
    folder: str = ""  # where single files go
    base: str = ""  # the set whose images this one relabels


def _cifar(name: str) -> Entry:
    versions = cifar.VERSIONS[name]
    return Entry(
        functools.partial(cifar.present, name),
        functools.partial(cifar.load, name),
        functools.partial(cifar.missing, name),
        remotes=(versions["binary"].archive,),
        archives=tuple((version.archive, version.folder) for version in versions.values()),
    )


def _human_labels(name: str) -> Entry:
    def load(root: Path, *, kind: str = label_noise.KINDS[name][0], verify: bool = True) -> Dataset:
        dataset = _ENTRIES[name].load(root, verify=verify)
        return label_noise.with_human_labels(dataset, root, kind)

    def present(root: Path) -> bool:
        return label_noise.present(name, root) is not None and available(name, root)

    return Entry(present, load, functools.partial(label_noise.missing, name), base=name)


_ENTRIES: dict[str, Entry] = {
    "cifar10": _cifar("cifar10"),
    "cifar100": _cifar("cifar100"),
    "cinic10": Entry(cinic.present, cinic.load, cinic.missing, (cinic.REMOTE,), ((cinic.REMOTE, cinic.FOLDER),)),
    "clothing1m": Entry(clothing.present, clothing.load, clothing.missing),
    "fashion": Entry(fashion.present, fashion.load, fashion.missing, fashion.REMOTES, folder=fashion.FOLDERS[0]),
    "femnist": Entry(femnist.present, femnist.load, femnist.missing),
    "shakespeare": Entry(shakespeare.present, shakespeare.load, shakespeare.missing),
    "tinyimagenet": Entry(
        tinyimagenet.present,
        tinyimagenet.load,
        tinyimagenet.missing,
        (tinyimagenet.REMOTE,),
        ((tinyimagenet.REMOTE, tinyimagenet.FOLDER),),
    ),
}
_ENTRIES |= {"cifar10n": _human_labels("cifar10"), "cifar100n": _human_labels("cifar100")}


def names() -> tuple[str, ...]:
    return tuple(sorted(_ENTRIES))


def available(name: str, data_dir: str | Path | None = None) -> bool:
    """Whether `load` would find the set's files without a download; they are not checked."""
    entry, root = _entry(name), store.data_root(data_dir)
    archived = any((root / remote.filename).is_file() for remote, _ in entry.archives)
    return bool(entry.present(root)) or archived


def accepted(name: str) -> tuple[str, ...]:
    """The options of the set's own `load`."""
    return tuple(offered(_entry(name).load, leading=1)[0])


def loader(name: str) -> Callable[..., Dataset]:
    """`load` for one set, with the options that this set has."""

    def loads(*, dir: str | None = None, download: bool = False, **options: Any) -> Dataset:
        return load(name, dir, download, **options)

    own = [p for p in signature(_entry(name).load).parameters.values() if p.kind is p.KEYWORD_ONLY]
    shared = [p for p in signature(loads).parameters.values() if p.kind is p.KEYWORD_ONLY]
    loads.__signature__ = inspect.Signature([*own, *shared])  # type: ignore[attr-defined]  # what `signature` looks at
    return loads


def load(name: str, data_dir: str | Path | None = None, download: bool = False, **options: Any) -> Dataset:
    """The data set, from its cache if it was loaded before; downloaded only if `download` says so."""
    entry, root = _entry(name), store.data_root(data_dir)
    known = accepted(name)
    for key in options:
        if key not in known:
            raise unknown_option("data", "data.name", name, key, known)
    verify = bool(options.get("verify", True))
    if entry.base:
        if not label_noise.present(entry.base, root):
            raise AdafedError(label_noise.missing(entry.base, root))
        load(entry.base, root, download, verify=verify)
    # CIFAR may be here in one version while the one asked for is still packed.
    if not entry.present(root) or options.get("version"):
        _unpack_archives(entry, root, verify=verify)
    if not entry.present(root) and download:
        for remote in entry.remotes:
            fetch(remote, root / entry.folder)
        _unpack_archives(entry, root, verify=True)
    if not entry.present(root):
        raise AdafedError(entry.missing(root))
    return entry.load(root, **options)


def _entry(name: str) -> Entry:
    if name not in _ENTRIES:
        raise unknown_name("data.name", name, names())
    return _ENTRIES[name]


def _unpack_archives(entry: Entry, root: Path, *, verify: bool) -> None:
    for remote, folder in entry.archives:
        archive = root / remote.filename
        if archive.is_file() and not (root / folder).exists():
            if verify:
                store.verify_file(archive, store.Published(remote.md5, remote.size))
            unpack(archive, folder)
            return
