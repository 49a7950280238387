"""Clothing1M (Xiao et al., 2015) from its published annotation files and images: 14 classes, noisy labels to train on.

Its authors hand it out on request. A million images of 224 x 224 take 150 GB as arrays: `size` and `limit` lessen it.
With a `margin`, training images are larger by so much on each side, to be cut from at random ([augment] crop = size).
"""

from __future__ import annotations

import functools
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np

from adafed.data import store
from adafed.data.base import Array, Dataset, Normalisation
from adafed.data.tinyimagenet import append_images
from adafed.errors import AdafedError

PAGE = "https://github.com/Cysu/noisy_label"
FOLDER = "clothing1m"

# ImageNet's mean and deviation, as FedCorr's authors have it, and as the published weights of ResNet-50 expect it.
RECIPE = store.Recipe("clothing1m", 14, Normalisation((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))


def present(root: Path) -> Path | None:
    """The folder of the annotation files: the set's own, or `annotations` in it."""
    for folder in (root / FOLDER, root / FOLDER / "annotations"):
        if (folder / "noisy_label_kv.txt").is_file() and (folder / "clean_label_kv.txt").is_file():
            return folder
    return None


def load(root: Path, *, train: str = "noisy", size: int = 224, margin: int = 0, limit: int | None = None) -> Dataset:
    """Train on the noisy or the clean part, test on the clean test part; `limit` keeps the first so many of each.

    Without a `margin` an image is the middle of the picture. With one, a training image is the whole picture resized to
    `size` + 2 `margin` on each side, and a test image the whole picture resized to `size`, in a black frame of that
    width: its middle is then what FedCorr's authors test on, for whom the three numbers are 224, 16 and 256.
    """
    folder = present(root)
    if folder is None:
        raise AdafedError(missing(root))
    if train not in ("noisy", "clean"):
        raise AdafedError(f"train = {train!r} of clothing1m is unknown; take 'noisy' or 'clean'.")
    if size < 1 or (limit is not None and limit < 1):
        raise AdafedError(f"size = {size} and limit = {limit} of clothing1m have to be at least 1.")
    if margin < 0:
        raise AdafedError(f"margin = {margin} of clothing1m has to be at least 0.")
    side = size + 2 * margin
    lists = [
        (folder / f"{train}_train_key_list.txt", folder / f"{train}_label_kv.txt", False),
        (folder / "clean_test_key_list.txt", folder / "clean_label_kv.txt", True),
    ]
    parts = [(_labelled(root / FOLDER, keys, labels)[:limit], is_test) for keys, labels, is_test in lists]
    total = sum(len(part) for part, _ in parts)

    def build(draft: store.Draft) -> None:
        needed, free = total * 3 * side * side, shutil.disk_usage(root).free
        if needed > free:
            raise AdafedError(
                f"clothing1m needs {needed / 1e9:.0f} GB for {total:,} images of {side} x {side} and {root} has "
                f"{free / 1e9:.0f} GB free; give a smaller size or a limit."
            )
        for part, is_test in parts:
            fit = functools.partial(_fitted, size=size, margin=margin, is_test=is_test)
            append_images(draft, part, fit, is_test=is_test, threads=None)

    sources = [path for keys, labels, _ in lists for path in (keys, labels)]
    sources += [path for part, _ in parts for path, _ in part]
    options = {"train": train, "size": size, "limit": limit} | ({"margin": margin} if margin else {})
    return replace(store.cached(RECIPE, root, sources, build, options=options), wrong_labels=train == "noisy")


def missing(root: Path) -> str:
    return (
        f"Clothing1M is not in {root}: ask its authors for it ({PAGE}) and put its annotation files and its images "
        f"folder into {root / FOLDER}."
    )


def _labelled(base: Path, keys: Path, labels: Path) -> list[tuple[Path, int]]:
    """Key files have an image's path on each line, label files a path and a class."""
    known: dict[str, int] = {}
    for number, line in enumerate(_lines(labels), 1):
        key, _, label = line.rpartition(" ")
        if not key or not label.isdigit():
            raise AdafedError(f"{labels}, line {number}, is not an image's path and a class.")
        known[key] = int(label)
    found = []
    for number, key in enumerate(_lines(keys), 1):
        if key not in known:
            raise AdafedError(f"{keys}, line {number}, names {key!r}, which has no label in {labels.name}.")
        found.append((base / key, known[key]))
    return found


def _lines(path: Path) -> list[str]:
    try:
        return [line.strip() for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise AdafedError(f"{path} of clothing1m is missing or unreadable.") from error


def _fitted(image: object, size: int, margin: int, is_test: bool) -> Array:
    from PIL import Image

    assert isinstance(image, Image.Image)
    if not margin:
        return _centre(image, size)
    if not is_test:
        side = size + 2 * margin
        return np.asarray(image.resize((side, side), Image.Resampling.BILINEAR))
    resized = np.asarray(image.resize((size, size), Image.Resampling.BILINEAR))
    return np.pad(resized, ((margin, margin), (margin, margin), (0, 0)))


def _centre(image: object, size: int) -> Array:
    """The middle 224/256 of the shorter side, as after the usual resize to 256 and crop to 224."""
    from PIL import Image

    assert isinstance(image, Image.Image)
    side = min(image.size) * 224 / 256
    left, top = (image.size[0] - side) / 2, (image.size[1] - side) / 2
    box = (left, top, left + side, top + side)
    return np.asarray(image.resize((size, size), Image.Resampling.BILINEAR, box=box))
