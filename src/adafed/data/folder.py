"""The user's own data, one npz file a client: headers are read up front, a client's arrays when asked for.

A file holds `x` and `y`, and optionally `x_validation`, `y_validation`, `x_test` and `y_test`; parts it does
not bring are held out of x and y. Images are uint8 of shape (n, channels, height, width), text whole numbers
of shape (n, length), features floats of shape (n, features).
"""

from __future__ import annotations

import hashlib
import lzma
import math
import struct
import tokenize
import zipfile
import zlib
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from adafed.data.arrays import (
    SPLITTING,
    SUFFIXES,
    check_layout,
    checked_arrays,
    given_parts,
    kind_of,
    split_client,
    train_size,
)
from adafed.data.base import Array, ClientData, Normalisation
from adafed.data.partition import checked_seed
from adafed.data.split import check_fractions
from adafed.data.unpacking import require_in_proportion
from adafed.errors import AdafedError

Header = tuple[tuple[int, ...], np.dtype[Any]]
BROKEN = (
    OSError, ValueError, TypeError, EOFError, KeyError, IndexError, AttributeError, OverflowError, struct.error,
    zipfile.BadZipFile, zlib.error, lzma.LZMAError, tokenize.TokenError,
    RuntimeError,  # a password, a way of packing that is not known, and a header of thousands of brackets
    SyntaxError, MemoryError,  # the same header, to Python's own parser
)  # fmt: skip


class FolderFederation:
    """The clients are the npz files of `folder`, in the order of their names; `client` reads one of them."""

    def __init__(
        self,
        folder: str | Path,
        *,
        classes: int | None = None,
        validation: float = 0.1,
        test: float = 0.1,
        seed: int = 0,
        normalisation: Normalisation | None = None,
    ) -> None:
        self._folder = Path(folder)
        if not self._folder.is_dir():
            raise AdafedError(f"data.folder = {str(folder)!r} is not a folder.")
        self._files = sorted(self._folder.glob("*.npz"))
        if not self._files:
            raise AdafedError(f"data.folder = {str(folder)!r} holds no npz files.")
        check_fractions(validation, test)
        self._fractions = (validation, test)
        self._seed = checked_seed(seed)
        self._given_classes = classes
        self._normalisation = normalisation or Normalisation()
        sizes = []
        self._shape: tuple[int, ...] = ()
        kinds: dict[str, str] = {}
        for file in self._files:
            headers = npz_headers(file)
            brings = given_parts(str(file), set(headers))
            for suffix in SUFFIXES:
                if "x" + suffix in headers:
                    check_layout(str(file), suffix, headers["x" + suffix], headers["y" + suffix])
                    shape = headers["x" + suffix][0][1:]
                    self._shape = self._shape or shape
                    if shape != self._shape:
                        raise AdafedError(
                            f"{file}: x{suffix} has samples of shape {shape}, "
                            f"those of {self._files[0].name} have {self._shape}."
                        )
                    if headers["x" + suffix][0][0]:
                        kinds.setdefault(kind_of(headers["x" + suffix][1]), file.name)
                    if len(kinds) > 1:
                        told = " and ".join(f"{one} ({which})" for one, which in kinds.items())
                        raise AdafedError(f"{folder}: inputs differ in kind, {told}; give all the same.")
            try:
                sizes.append(train_size(headers["x"][0][0], brings, validation, test))
            except AdafedError as error:
                raise AdafedError(f"{file}: {error}") from error
        self._train_sizes = np.array(sizes, dtype=np.int64)

    @property
    def name(self) -> str:
        return self._folder.resolve().name

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(file.stem for file in self._files)

    @cached_property
    def classes(self) -> int:
        """As given, or one more than the largest label, for which the labels (not the inputs) are read."""
        if self._given_classes is not None:
            return self._given_classes
        largest = 0
        for file in self._files:
            for suffix in SUFFIXES:
                labels = npz_array(file, "y" + suffix)
                if labels is not None:
                    largest = max(largest, int(labels.max(initial=0)))
        return largest + 1

    @property
    def input_shape(self) -> tuple[int, ...]:
        return self._shape

    @property
    def normalisation(self) -> Normalisation:
        return self._normalisation

    @property
    def train_sizes(self) -> npt.NDArray[np.int64]:
        return self._train_sizes

    @cached_property
    def checksum(self) -> str:
        """Of the files' names and bytes and of the way they are split."""
        digest = hashlib.sha256(f"{self._fractions} {self._seed}\n".encode())
        for file in self._files:
            with file.open("rb") as stream:
                digest.update(f"{file.name} {hashlib.file_digest(stream, 'sha256').hexdigest()}\n".encode())
        return digest.hexdigest()

    def client(self, index: int) -> ClientData:
        file = self._files[index]
        arrays: dict[str, tuple[Array, npt.NDArray[np.int64]]] = {}
        for suffix in SUFFIXES:
            x, y = npz_array(file, "x" + suffix), npz_array(file, "y" + suffix)
            if x is not None and y is not None:
                arrays[suffix] = checked_arrays(str(file), suffix, x, y, self._given_classes)
        return split_client(arrays, *self._fractions, [self._seed, index % len(self._files), SPLITTING])

    def train_labels(self, index: int) -> npt.NDArray[np.int64]:
        """Without reading the inputs."""
        labels = {}
        for suffix in SUFFIXES:
            y = npz_array(self._files[index], "y" + suffix)
            if y is not None:
                labels[suffix] = (y, np.asarray(y, dtype=np.int64))
        return split_client(labels, *self._fractions, [self._seed, index % len(self._files), SPLITTING]).train.targets


def npz_headers(file: Path) -> dict[str, Header]:
    """Shape and dtype of every array in the file, without reading any of them."""
    try:
        with zipfile.ZipFile(file) as archive:
            members = {member.filename.removesuffix(".npy"): member for member in archive.infolist()}
            if len(members) < len(archive.infolist()):  # numpy might read another than was looked at
                raise ValueError("it holds an array twice")
            for member in members.values():
                require_in_proportion(f"{file}: {member.filename}", member.compress_size, member.file_size)
            return {name: _header(archive, member) for name, member in members.items()}
    except AdafedError:
        raise
    except BROKEN as error:
        raise AdafedError(f"{file} is not a readable npz file: {error}.") from error


def _header(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Header:
    with archive.open(member) as stream:
        version = np.lib.format.read_magic(stream)
        if version == (1, 0):
            shape, _, dtype = np.lib.format.read_array_header_1_0(stream)
        elif version == (2, 0):
            shape, _, dtype = np.lib.format.read_array_header_2_0(stream)
        else:
            raise ValueError(f"{member.filename} has npy version {version}")
        if dtype.hasobject:
            raise ValueError(f"{member.filename} holds Python objects, which are not unpickled")
        # A header that promises more than the file holds must not make the reader allocate it.
        if stream.tell() + math.prod(shape) * dtype.itemsize != member.file_size:
            raise ValueError(f"{member.filename} is cut short or too long for its shape {shape}")
    return shape, dtype


def npz_array(file: Path, key: str) -> Array | None:
    try:
        with np.load(file, allow_pickle=False) as archive:
            return np.asarray(archive[key]) if key in archive.files else None
    except BROKEN as error:
        raise AdafedError(f"{file}: cannot read {key!r}: {error}.") from error
