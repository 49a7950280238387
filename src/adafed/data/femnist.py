"""FEMNIST (Caldas et al., 2018) as LEAF writes it, and LEAF's JSON itself, which Shakespeare shares.

LEAF's files each hold some users, `{users, num_samples, user_data: {user: {x, y}}}`, in a folder for each of train and
test. FEMNIST's x are 784 floats in [0, 1] on a white background; times 255 they are the bytes they once were.
Classes 0-9 are digits, 10-35 upper and 36-61 lower case.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from adafed.data import store
from adafed.data.base import Array, Dataset, Normalisation
from adafed.errors import AdafedError
from adafed.files import parsed

PAGE = "https://github.com/TalwalkarLab/leaf"

# LEAF's models take the pixels in [0, 1] as they are, and so do q-FFL's and Ditto's.
RECIPE = store.Recipe("femnist", 62, Normalisation((0.0,), (1.0,)))


def present(root: Path) -> dict[str, list[Path]] | None:
    return leaf_files(root / "femnist")


def load(root: Path) -> Dataset:
    parts = present(root)
    if parts is None:
        raise AdafedError(missing(root))

    def build(draft: store.Draft) -> None:
        names: dict[str, int] = {}
        for part, path, user, x, y in leaf_users(parts):
            group = names.setdefault(user, len(names))
            pixels = _pixels(path, user, x)
            draft.append(pixels, _labels(path, user, y), np.full(len(y), group), is_test=part == "test")
        draft.group_names = tuple(names)

    return store.cached(RECIPE, root, [path for paths in parts.values() for path in paths], build)


def missing(root: Path) -> str:
    return (
        f"FEMNIST is not in {root}: make it with LEAF ({PAGE}, data/femnist/preprocess.sh -s niid --sf 1.0 -k 0 "
        f"-t sample) and put its train and test folders of JSON files into {root / 'femnist'}."
    )


def _pixels(path: Path, user: str, x: list[Any]) -> Array:
    try:
        with np.errstate(over="ignore"):  # what overflows leaves [0, 1], and is refused below
            values = np.array(x, np.float32).reshape(len(x), -1)
    except (ValueError, TypeError, OverflowError) as error:
        raise AdafedError(f"{path}: the images of {user} are not lists of 784 numbers.") from error
    if len(x) and values.shape[1] != 784:
        raise AdafedError(f"{path}: the images of {user} have {values.shape[1]} pixels instead of 784.")
    if len(x) and not (values.min() >= 0 and values.max() <= 1):
        raise AdafedError(f"{path}: the pixels of {user} leave [0, 1], so this is not LEAF's FEMNIST.")
    return np.rint(values * 255).astype(np.uint8).reshape(-1, 1, 28, 28)


def _labels(path: Path, user: str, y: list[Any]) -> Array:
    if not all(type(label) is int for label in y):
        raise AdafedError(f"{path}: the labels of {user} are not integers.")
    try:
        return np.array(y, np.int64)
    except OverflowError as error:
        raise AdafedError(f"{path}: the labels of {user} are beyond all numbers of classes.") from error


def leaf_files(folder: Path) -> dict[str, list[Path]] | None:
    """The JSON files of both parts, from `folder` or, as LEAF leaves them, from `folder`/data."""
    for base in (folder, folder / "data"):
        parts = {part: sorted((base / part).glob("*.json")) for part in ("train", "test")}
        if all(parts.values()):
            return parts
    return None


def leaf_users(parts: dict[str, list[Path]]) -> Iterator[tuple[str, Path, str, list[Any], list[Any]]]:
    """(part, file, user, x, y) for every user of every file, one file in memory at a time."""
    for part, paths in parts.items():
        for path in paths:
            document = _leaf_document(path)
            for user, count in zip(document["users"], document["num_samples"], strict=True):
                if not isinstance(user, str):
                    raise AdafedError(f"{path}: users has {user!r}; LEAF's users are names.")
                data = document["user_data"].pop(user, None)  # popped: its memory goes once it is consumed
                if not isinstance(data, dict) or not all(isinstance(data.get(key), list) for key in "xy"):
                    raise AdafedError(f"{path}: user {user!r} has no lists x and y, which LEAF's JSON needs.")
                if not len(data["x"]) == len(data["y"]) == count:
                    raise AdafedError(
                        f"{path}: user {user!r} has {len(data['x'])} x and {len(data['y'])} y where num_samples says "
                        f"{count}."
                    )
                yield part, path, user, data["x"], data["y"]


def _leaf_document(path: Path) -> dict[str, Any]:
    try:
        document = parsed(path.read_bytes())
    except ValueError as error:
        raise AdafedError(f"{path} is truncated or corrupt: it is not JSON.") from error
    if (
        not isinstance(document, dict)
        or not isinstance(document.get("users"), list)
        or not isinstance(document.get("num_samples"), list)
        or not isinstance(document.get("user_data"), dict)
        or len(document["users"]) != len(document["num_samples"])
    ):
        raise AdafedError(f"{path} is not LEAF's JSON: it needs users, as many num_samples, and user_data.")
    return document
