"""Fashion-MNIST (Xiao et al., 2017), from its four idx files, gzipped as published or plain."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from adafed.data import store
from adafed.data.base import Array, Dataset, Normalisation
from adafed.data.download import Remote
from adafed.data.unpacking import gunzipped
from adafed.errors import AdafedError

PAGE = "https://github.com/zalandoresearch/fashion-mnist"
FOLDERS = ("FashionMNIST/raw", "fashion-mnist", "FashionMNIST")
_SITE = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"

# The publisher's MD5 of the gzipped files, and those of what is in them.
REMOTES = (
    Remote(_SITE + "train-images-idx3-ubyte.gz", "8d4fb7e6c68d591d4c3dfef9ec88bf0d", 26_421_880),
    Remote(_SITE + "train-labels-idx1-ubyte.gz", "25c81989df183df01b3e8a0aad5dffbe", 29_515),
    Remote(_SITE + "t10k-images-idx3-ubyte.gz", "bef4ecab320f06d8554ea6380940ec79", 4_422_102),
    Remote(_SITE + "t10k-labels-idx1-ubyte.gz", "bb300cfdad3c16e7a12a480ee83cd310", 5_148),
)
PUBLISHED = {remote.filename: store.Published(remote.md5, remote.size) for remote in REMOTES} | {
    "train-images-idx3-ubyte": store.Published("f4a8712d7a061bf5bd6d2ca38dc4d50a", 47_040_016),
    "train-labels-idx1-ubyte": store.Published("9018921c3c673c538a1fc5bad174d6f9", 60_008),
    "t10k-images-idx3-ubyte": store.Published("8181f5470baa50b63fa0f6fddb340f0a", 7_840_016),
    "t10k-labels-idx1-ubyte": store.Published("15d484375f8d13e6eb1aabb0c3f46965", 10_008),
}

# Mean and standard deviation of the pixels of the 60,000 training images.
RECIPE = store.Recipe("fashion", 10, Normalisation((0.2860,), (0.3530,)))


def present(root: Path) -> list[Path] | None:
    """Train images, train labels, test images, test labels."""
    for folder in FOLDERS:
        found = []
        for remote in REMOTES:
            zipped = root / folder / remote.filename
            found += [path for path in (zipped, zipped.with_suffix("")) if path.is_file()][:1]
        if len(found) == len(REMOTES):
            return found
    return None


def load(root: Path, *, verify: bool = True) -> Dataset:
    """`verify=False` accepts files that differ from the published ones."""
    files = present(root)
    if files is None:
        raise AdafedError(missing(root))

    def build(draft: store.Draft) -> None:
        for images, labels, is_test in ((files[0], files[1], False), (files[2], files[3], True)):
            pixels, targets = read_idx(images, 3), read_idx(labels, 1)
            if len(pixels) != len(targets):
                raise AdafedError(f"{images} has {len(pixels)} images and {labels} {len(targets)} labels.")
            if pixels.shape[1:] != (28, 28):
                raise AdafedError(f"{images} has images of shape {pixels.shape[1:]}; Fashion-MNIST's are (28, 28).")
            draft.append(pixels[:, None], targets, is_test=is_test)

    published = {path: PUBLISHED[path.name] for path in files}
    return store.cached(RECIPE, root, files, build, published=published, verify=verify)


def missing(root: Path) -> str:
    return (
        f"Fashion-MNIST is not in {root}: get its four idx files from {PAGE} and put them into {root / FOLDERS[0]}, "
        f"or allow the download (data.download = true, --download of reproduce)."
    )


def read_idx(path: Path, axes: int) -> Array:
    """An idx file of unsigned bytes: two zeros, type 8, the number of axes, their big-endian lengths, the bytes."""
    blob = gunzipped(path) if path.suffix == ".gz" else path.read_bytes()
    if blob[:4] != bytes((0, 0, 8, axes)):
        raise AdafedError(
            f"{path} is not an idx file of unsigned bytes with {axes} axes: it begins {blob[:4].hex()!r}."
        )
    start = 4 + 4 * axes
    if len(blob) < start:
        raise AdafedError(f"{path} is truncated: it ends within its header.")
    shape = [int(length) for length in np.frombuffer(blob, ">u4", axes, offset=4)]
    count = math.prod(shape)
    if len(blob) != start + count:
        raise AdafedError(f"{path} is truncated or corrupt: it has {len(blob) - start:,} bytes for {count:,} values.")
    return np.frombuffer(blob, np.uint8, offset=start).reshape(shape)
