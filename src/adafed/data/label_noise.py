"""CIFAR-10N and CIFAR-100N (Wei et al., 2022): the labels people gave to CIFAR's training images, errors and all.

Read from .npz, or from text with a column for each kind. The published .pt files are pickles, which nothing here opens;
the refusal says how to convert one. The clean labels beside the noisy ones must agree with the data set's own, which
proves that the order of the images is the same. A data set with the first training images only takes the first labels.
"""

from __future__ import annotations

import csv
import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np

from adafed.data.base import Array, Dataset
from adafed.data.folder import npz_array, npz_headers
from adafed.errors import AdafedError

PAGE = "https://github.com/UCSC-REAL/cifar-10-100n"
FOLDER = "cifar-n"
KINDS = {
    "cifar10": ("aggre", "worse", "random1", "random2", "random3"),
    "cifar100": ("noisy",),
}
_KEYS = {
    "aggre": "aggre_label",
    "worse": "worse_label",
    "random1": "random_label1",
    "random2": "random_label2",
    "random3": "random_label3",
    "noisy": "noisy_label",
}
_TITLES = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100"}


def present(name: str, root: Path) -> Path | None:
    """The labels of "cifar10" or "cifar100" in a form that can be read."""
    for suffix in (".npz", ".csv", ".txt"):
        path = root / FOLDER / f"{name}n{suffix}"
        if path.is_file():
            return path
    return None


def with_human_labels(dataset: Dataset, root: Path, kind: str) -> Dataset:
    """The data set with people's labels on its training images; its test labels stay as published."""
    kinds = KINDS.get(dataset.name)
    if kinds is None or dataset.is_test is None:
        raise AdafedError(f"Human labels exist for cifar10 and cifar100, not for {dataset.name}.")
    if kind not in kinds:
        raise AdafedError(f"kind = {kind!r} of {dataset.name}n is unknown; take one of {', '.join(kinds)}.")
    path = present(dataset.name, root)
    if path is None:
        raise AdafedError(missing(dataset.name, root))
    columns = read_columns(path)
    absent = [key for key in ("clean_label", _KEYS[kind]) if key not in columns]
    if absent:
        raise AdafedError(f"{path} lacks {absent[0]!r}; it has {', '.join(sorted(columns))}.")
    clean, noisy = columns["clean_label"], columns[_KEYS[kind]]
    train = np.flatnonzero(~dataset.is_test)
    if len(clean) < len(train) or len(clean) != len(noisy):
        raise AdafedError(
            f"{path} has {len(clean)} clean and {len(noisy)} noisy labels for {len(train)} training images."
        )
    if not np.array_equal(clean[: len(train)], dataset.targets[train]):
        raise AdafedError(f"{path} has clean labels other than {dataset.name}'s, so its order or data set is another.")
    if noisy.min() < 0 or noisy.max() >= dataset.classes:
        raise AdafedError(f"{path} has labels outside the {dataset.classes} classes of {dataset.name}.")
    targets = dataset.targets.copy()
    targets[train] = noisy[: len(train)]
    digest = hashlib.sha256(f"{dataset.checksum} {kind}".encode())
    digest.update(np.ascontiguousarray(targets).data)
    return replace(dataset, name=f"{dataset.name}n", targets=targets, checksum=digest.hexdigest(), wrong_labels=True)


def missing(name: str, root: Path) -> str:
    title, folder = _TITLES[name], root / FOLDER
    converted = [*folder.glob("*_human*.pt"), *root.glob(f"{title}_human*.pt")]
    target = folder / f"{name}n.npz"
    if converted:
        return (
            f"{converted[0]} is a pickle, which can run code and is not opened here: convert it once, where you trust "
            f"it, with torch.load and numpy.savez to {target}."
        )
    return (
        f"{title}N is not in {root}: get {title}_human.pt from {PAGE} and convert it once, where you trust it, with "
        f"torch.load and numpy.savez to {target}."
    )


def read_columns(path: Path) -> dict[str, Array]:
    """Named columns of integers."""
    try:
        if path.suffix == ".npz":
            columns = {key: array for key in npz_headers(path) if (array := npz_array(path, key)) is not None}
        else:
            with path.open(encoding="utf-8", newline="") as text:
                sample = text.readline()
                delimiter = next((mark for mark in ",;\t" if mark in sample), " ")
                names = [name.strip() for name in sample.split(delimiter)]
                rows = [[int(value) for value in row] for row in csv.reader(text, delimiter=delimiter) if row]
            if not rows or any(len(row) != len(names) for row in rows):
                raise ValueError
            columns = dict(zip(names, np.array(rows, np.int64).T, strict=True))
        return {key: _integers(column) for key, column in columns.items() if column.dtype.kind in "iuf"}
    except (OSError, ValueError, OverflowError, csv.Error) as error:
        raise AdafedError(f"{path} is truncated or corrupt: it does not hold columns of integer labels.") from error


def _integers(column: Array) -> Array:
    whole = column.astype(np.int64)
    if whole.ndim != 1 or not np.array_equal(whole, column):
        raise ValueError
    return whole
