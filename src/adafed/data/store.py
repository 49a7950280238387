"""The cache between published files and arrays: read once, checked, then memory-mapped.

A first load hashes the sources, reads them and writes plain .npy files into `<data directory>/.cache/<name>-<key>`,
where the key covers every source's name, size and SHA-256 as well as the reader's options and version. The folder is
filled under another name and renamed when whole, so that a killed load leaves nothing that looks like a cache.
A source whose size and modification time have not changed is not hashed again. A whole entry is read where
nothing can be written, and by every user whom the umask of the one who made it lets read.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any
from uuid import uuid4

import numpy as np

from adafed.data.base import Array, Dataset, Normalisation
from adafed.errors import AdafedError
from adafed.files import alone, parsed, write_whole

_COLUMNS = ("inputs", "targets", "groups", "is_test")
_DTYPES = {"targets": np.dtype(np.int64), "groups": np.dtype(np.int64), "is_test": np.dtype(np.bool_)}
_STALE_SECONDS = 86_400
_MANY_FILES = 1000
_RACY_NANOSECONDS = 2_000_000_000


def data_root(data_dir: str | Path | None = None) -> Path:
    """Where data sets are looked for: the argument, else ADAFED_DATA, else ~/.cache/adafed."""
    chosen = data_dir or os.environ.get("ADAFED_DATA") or Path.home() / ".cache" / "adafed"
    return Path(chosen).expanduser()


@dataclass(frozen=True)
class Published:
    """What is known of a published file, by which an altered or truncated copy is recognised."""

    md5: str
    size: int | None = None


@dataclass(frozen=True)
class Recipe:
    """What a reader makes of its sources. `version` grows whenever the same sources would give other arrays."""

    name: str
    classes: int
    normalisation: Normalisation
    version: int = 1


def cached(
    recipe: Recipe,
    root: Path,
    sources: Sequence[Path],
    build: Callable[[Draft], None],
    *,
    options: Mapping[str, object] | None = None,
    published: Mapping[Path, Published] | None = None,
    verify: bool = True,
) -> Dataset:
    """The data set from its cache or, the first time, from `build`, which appends samples to the draft it is given."""
    # Beside the data, or in the home directory where the data's own folder is read-only.
    places = (root / ".cache", Path.home() / ".cache" / "adafed" / ".cache")
    writable = next((place for place in places if _can_be_written(place)), None)
    ledger = _Ledger((writable or places[0]) / f"{recipe.name}.sources.json", root)
    try:
        if verify:
            for path, expected in (published or {}).items():
                ledger.check(path, expected)
        lines = ledger.describe(sources)
    except OSError as error:
        raise AdafedError(f"{recipe.name}: {error.filename} cannot be read: {error.strerror}.") from error
    if writable is not None:
        ledger.save()
    facts = json.dumps([recipe.name, recipe.version, sorted((options or {}).items()), lines], default=str)
    entry = f"{recipe.name}-{hashlib.sha256(facts.encode()).hexdigest()[:24]}"
    for place in places:
        found = _open(recipe, place / entry)
        if found is None and place == writable:
            found = _made(recipe, place / entry, build)
        if found is not None:
            return found
    raise AdafedError(f"Neither {places[0]} nor {places[1]} can be written; give a data_dir that can.")


def _made(recipe: Recipe, folder: Path, build: Callable[[Draft], None]) -> Dataset:
    # A damaged entry goes before the whole one takes its name, so two that fill at once would remove each other's.
    with alone(folder.with_name(f"{recipe.name}.lock")):
        found = _open(recipe, folder)  # a process that was waited for may have made it
        if found is None:
            _fill(recipe, folder, build)
            found = _open(recipe, folder)
    if found is None:
        raise AdafedError(f"{folder} was just written and cannot be read back; check the disk.")
    return found


class Draft:
    """A cache entry being written: columns that grow block by block on disk, hashed as they grow."""

    def __init__(self, recipe: Recipe, folder: Path) -> None:
        self.recipe = recipe
        self.group_names: tuple[str, ...] | None = None
        self._folder = folder
        self._columns: dict[str, _Column] = {}
        self.length = 0

    def append(
        self, inputs: Array, targets: Array, groups: Array | None = None, is_test: Array | bool | None = None
    ) -> None:
        """Add a block of samples; every block has the same columns, dtype and sample shape."""
        count = len(targets)
        if not count:
            return
        labels = np.asarray(targets)
        if labels.min() < 0 or labels.max() >= self.recipe.classes:
            wrong = int(labels.min() if labels.min() < 0 else labels.max())
            raise AdafedError(
                f"{self.recipe.name} has a label {wrong}, outside its {self.recipe.classes} classes 0 to "
                f"{self.recipe.classes - 1}; the file is corrupt or of another data set."
            )
        if isinstance(is_test, bool):
            is_test = np.full(count, is_test)
        block = {"inputs": inputs, "targets": targets, "groups": groups, "is_test": is_test}
        for name, values in block.items():
            if values is None:
                continue
            array = np.ascontiguousarray(values, dtype=_DTYPES.get(name))
            if len(array) != count:
                raise AdafedError(f"{self.recipe.name} has {len(array)} {name} for {count} targets.")
            if name not in self._columns:
                self._columns[name] = _Column(self._folder / f"{name}.npy", array.dtype, array.shape[1:])
            self._columns[name].append(array)
        self.length += count

    def finish(self) -> None:
        if not self.length:
            raise AdafedError(f"{self.recipe.name} has no samples in its files.")
        digest = hashlib.sha256()
        arrays: dict[str, dict[str, Any]] = {}
        for name in _COLUMNS:
            column = self._columns.get(name)
            if column is None:
                continue
            column.close()
            if column.length != self.length:
                raise AdafedError(f"{self.recipe.name} has {column.length} {name} for {self.length} samples.")
            arrays[name] = {"dtype": column.dtype.str, "shape": [column.length, *column.shape]}
            digest.update(json.dumps([name, arrays[name]]).encode())
            digest.update(column.digest.digest())
        digest.update(json.dumps(self.group_names).encode())
        meta = {"arrays": arrays, "checksum": digest.hexdigest(), "group_names": self.group_names}
        (self._folder / "meta.json").write_text(json.dumps(meta), encoding="utf-8")

    def close(self) -> None:
        for column in self._columns.values():
            column.file.close()


class _Column:
    """One .npy file that grows along its first axis. numpy pads the header for exactly this: its length stays."""

    def __init__(self, path: Path, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
        self.dtype, self.shape, self.length = dtype, shape, 0
        self.digest = hashlib.sha256()
        self.file: IO[bytes] = path.open("wb")
        self._write_header()

    def _write_header(self) -> None:
        shape = (self.length, *self.shape)
        header = {"descr": self.dtype.str, "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(self.file, header)

    def append(self, block: Array) -> None:
        if block.dtype != self.dtype or block.shape[1:] != self.shape:
            raise AdafedError(
                f"A sample has shape {block.shape[1:]} and type {block.dtype}, the ones before it {self.shape} and "
                f"{self.dtype}."
            )
        raw = block.data.cast("B")
        self.digest.update(raw)
        self.file.write(raw)
        self.length += len(block)

    def close(self) -> None:
        self.file.seek(0)
        self._write_header()
        self.file.flush()
        os.fsync(self.file.fileno())
        self.file.close()


def _fill(recipe: Recipe, folder: Path, build: Callable[[Draft], None]) -> None:
    _sweep(folder.parent)
    scratch = folder.with_name(f".writing-{uuid4().hex}")
    draft = Draft(recipe, scratch)
    try:
        scratch.mkdir()  # with what the umask grants; tempfile's would be closed to all other users
        build(draft)
        draft.finish()
        shutil.rmtree(folder, ignore_errors=True)  # an entry that could not be opened
        os.replace(scratch, folder)
    except OSError as error:
        raise AdafedError(f"The cache of {recipe.name} cannot be written to {folder.parent}: {error}.") from error
    finally:
        draft.close()
        shutil.rmtree(scratch, ignore_errors=True)


def _sweep(cache: Path) -> None:
    """Remove what killed loads left behind, once nobody can still be writing it."""
    for scratch in cache.glob(".writing-*"):
        with suppress(FileNotFoundError):  # another data set's load has just ended, or swept too
            if time.time() - scratch.stat().st_mtime > _STALE_SECONDS:
                shutil.rmtree(scratch, ignore_errors=True)


def _open(recipe: Recipe, folder: Path) -> Dataset | None:
    """The entry, or None if it is absent or damaged and has to be made again."""
    try:
        meta = parsed((folder / "meta.json").read_bytes())
        arrays: dict[str, Array] = {}
        for name, expected in meta["arrays"].items():
            # Copy-on-write: pages are read when touched, and a caller's stray write cannot reach the disk.
            mode: Any = "c" if name == "inputs" else None
            array = np.load(folder / f"{name}.npy", mmap_mode=mode, allow_pickle=False)
            if list(array.shape) != expected["shape"] or array.dtype.str != expected["dtype"]:
                return None
            arrays[name] = array
        names = meta["group_names"]
        return Dataset(
            name=recipe.name,
            inputs=arrays["inputs"],
            targets=arrays["targets"],
            classes=recipe.classes,
            normalisation=recipe.normalisation,
            checksum=str(meta["checksum"]),
            groups=arrays.get("groups"),
            group_names=None if names is None else tuple(names),
            is_test=arrays.get("is_test"),
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _can_be_written(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def verify_file(path: Path, expected: Published) -> None:
    """Refuse a file that is not the published one."""
    _Ledger(path.with_name(".none"), path.parent).check(path, expected)


class _Ledger:
    """Digests of source files, remembered under size and modification time as `git` does for its index."""

    def __init__(self, path: Path, root: Path) -> None:
        self._path, self._root = path, root
        self._changed = False
        try:
            held = parsed(path.read_bytes())
            self._held: dict[str, dict[str, Any]] = held if isinstance(held, dict) else {}
        except (OSError, ValueError):
            self._held = {}

    def _name(self, path: Path) -> str:
        return str(path).removeprefix(f"{self._root}{os.sep}").replace(os.sep, "/")

    def known(self, path: Path, kind: str) -> tuple[str, int] | None:
        facts = os.stat(path)
        held = self._held.get(self._name(path))
        if (
            isinstance(held, dict)
            and (held.get("size"), held.get("mtime")) == (facts.st_size, facts.st_mtime_ns)
            and kind in held
        ):
            return str(held[kind]), facts.st_size
        return None

    def digest(self, path: Path, kind: str) -> tuple[str, int]:
        if found_before := self.known(path, kind):
            return found_before
        facts = os.stat(path)
        name = self._name(path)
        held = self._held.get(name)
        with path.open("rb") as file:
            found = hashlib.file_digest(file, kind).hexdigest()
        # A file changed within the clock's grain could change again unseen: such a file is hashed again next time.
        if time.time_ns() - facts.st_mtime_ns > _RACY_NANOSECONDS:
            fresh: dict[str, Any] = {"size": facts.st_size, "mtime": facts.st_mtime_ns}
            if isinstance(held, dict) and _unchanged(held, facts):
                fresh = dict(held)
            self._held[name] = fresh | {kind: found}
            self._changed = True
        return found, facts.st_size

    def describe(self, sources: Iterable[Path]) -> list[tuple[str, str, int]]:
        found = {path: self.known(path, "sha256") for path in sources}
        fresh = [path for path, digest in found.items() if digest is None]
        if len(fresh) < _MANY_FILES:
            with ThreadPoolExecutor() as pool:  # hashing a large file releases the interpreter lock
                found.update(zip(fresh, pool.map(lambda path: self.digest(path, "sha256"), fresh), strict=True))
        else:  # a tree of small files, for which threads only get into each other's way
            found.update((path, self.digest(path, "sha256")) for path in fresh)
        return sorted((self._name(path), *digest) for path, digest in found.items() if digest)

    def check(self, path: Path, expected: Published) -> None:
        size = path.stat().st_size
        if expected.size in (None, size):
            md5, _ = self.digest(path, "md5")
            if md5 == expected.md5:
                return
            wrong = f"MD5 {md5} instead of {expected.md5}"
        else:
            wrong = f"{size:,} bytes instead of {expected.size:,}"
        raise AdafedError(
            f"{path} is not the published file ({wrong}); fetch it again, or pass verify=False if that is intended."
        )

    def save(self) -> None:
        if not self._changed:
            return
        # Threads of a process would write one temporary file; what cannot be remembered is hashed again.
        with suppress(AdafedError), alone(self._path.with_suffix(".lock")):
            write_whole(self._path, json.dumps(self._held).encode())


def _unchanged(held: Mapping[str, Any], facts: os.stat_result) -> bool:
    return (held.get("size"), held.get("mtime")) == (facts.st_size, facts.st_mtime_ns)
