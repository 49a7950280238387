"""TinyImageNet (Le & Yang, 2015) from its published tree, and the reading of image files that the other trees share.

The publisher's validation images serve as the test part: its own test images have no labels.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from adafed.data import store
from adafed.data.base import Array, Dataset, Normalisation
from adafed.data.download import Remote
from adafed.errors import AdafedError

if TYPE_CHECKING:
    from PIL.Image import Image

FOLDER = "tiny-imagenet-200"
REMOTE = Remote("http://cs231n.stanford.edu/tiny-imagenet-200.zip", "90528d7ca1a48142e341f4ef8d21d0de", 248_100_043)
_BLOCK = 1024
FORMATS = ("JPEG", "MPO", "PNG", "WEBP", "BMP", "GIF")  # no others: for some, Pillow calls other programs
MOST_PIXELS = 2**25

# The values commonly used for this set: mean and deviation of each channel over the 100,000 training images.
RECIPE = store.Recipe("tinyimagenet", 200, Normalisation((0.4802, 0.4481, 0.3975), (0.2770, 0.2691, 0.2821)))


def present(root: Path) -> Path | None:
    folder = root / FOLDER
    needed = (folder / "wnids.txt", folder / "train", folder / "val" / "val_annotations.txt")
    return folder if all(path.exists() for path in needed) else None


def load(root: Path) -> Dataset:
    folder = present(root)
    if folder is None:
        raise AdafedError(missing(root))
    wnids, annotations = folder / "wnids.txt", folder / "val" / "val_annotations.txt"
    classes = {name: label for label, name in enumerate(wnids.read_text(encoding="utf-8").split())}
    train = [
        (path, label)
        for name, label in classes.items()
        for path in natural(folder.joinpath("train", name, "images").glob("*.JPEG"))
    ]
    test = []
    for number, line in enumerate(annotations.read_text(encoding="utf-8").splitlines(), 1):
        fields = line.split("\t")
        if len(fields) < 2 or fields[1] not in classes:
            raise AdafedError(
                f"{annotations}, line {number}, does not name an image and one of the classes in wnids.txt."
            )
        test.append((folder / "val" / "images" / fields[0], classes[fields[1]]))

    def build(draft: store.Draft) -> None:
        append_images(draft, train, lambda image: exact(image, 64), is_test=False)
        append_images(draft, test, lambda image: exact(image, 64), is_test=True)

    sources = [wnids, annotations, *(path for path, _ in train), *(path for path, _ in test)]
    return store.cached(RECIPE, root, sources, build)


def missing(root: Path) -> str:
    return (
        f"TinyImageNet is not in {root}: get {REMOTE.filename} from {REMOTE.url} and put it there or unpack it to "
        f"{root / FOLDER}, or allow the download (data.download = true, --download of reproduce)."
    )


def natural(paths: Iterable[Path]) -> list[Path]:
    """Sorted so that image_2 comes before image_10."""
    return sorted(paths, key=lambda path: (len(path.name), path.name))


def append_images(
    draft: store.Draft,
    labelled: Sequence[tuple[Path, int]],
    fit: Callable[[Image], Array],
    *,
    is_test: bool,
    threads: int | None = 1,
) -> None:
    """Decode files and append them in order, a block at a time.

    Threads pay for large images, where most time goes to decoding outside the interpreter lock, and not for small ones.
    """
    with ThreadPoolExecutor(max_workers=threads) as pool:
        remaining = iter(labelled)
        while block := list(itertools.islice(remaining, _BLOCK)):
            paths = [path for path, _ in block]
            read = functools.partial(read_image, fit=fit)
            images = np.stack([*(map(read, paths) if threads == 1 else pool.map(read, paths))])
            draft.append(images, np.array([label for _, label in block]), is_test=is_test)


def read_image(path: Path, fit: Callable[[Image], Array]) -> Array:
    try:
        from PIL import Image
    except ImportError as error:
        raise AdafedError("Image files need Pillow: pip install 'adafed[images]'.") from error
    try:
        Image.init()
        with Image.open(path, formats=[one for one in FORMATS if one in Image.OPEN]) as image:
            if image.size[0] * image.size[1] > MOST_PIXELS:
                raise AdafedError(f"has {image.size[0]} x {image.size[1]} pixels, more than any picture of these sets.")
            pixels = fit(image.convert("RGB"))
    except FileNotFoundError as error:
        raise AdafedError(f"{path} is missing, though the annotations name it.") from error
    except Exception as error:  # a decoder may trip over anything in a broken file
        if isinstance(error, AdafedError):
            raise AdafedError(f"{path} {error}") from error
        raise AdafedError(f"{path} is truncated or corrupt: it does not decode as an image.") from error
    return np.ascontiguousarray(pixels.transpose(2, 0, 1))


def exact(image: Image, side: int) -> Array:
    if image.size != (side, side):
        raise AdafedError(f"has {image.size[0]} x {image.size[1]} pixels instead of {side} x {side}.")
    return np.asarray(image)
