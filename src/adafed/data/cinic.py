"""CINIC-10 (Darlow et al., 2018) from its published tree, {train, valid, test}/<class>/*.png."""

from __future__ import annotations

from pathlib import Path

from adafed.data import store
from adafed.data.base import Dataset, Normalisation
from adafed.data.download import Remote
from adafed.data.tinyimagenet import append_images, exact
from adafed.errors import AdafedError

PAGE = "https://datashare.ed.ac.uk/handle/10283/3192"
FOLDER = "CINIC-10"
REMOTE = Remote(
    "https://datashare.ed.ac.uk/bitstream/handle/10283/3192/CINIC-10.tar.gz",
    "6ee4d0c996905fe93221de577967a372",
    687_544_992,
)
CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
PARTS = ("train", "valid", "test")

# Mean and deviation of each channel as its authors give them (github.com/BayesWatch/cinic-10).
RECIPE = store.Recipe(
    "cinic10", 10, Normalisation((0.47889522, 0.47227842, 0.43047404), (0.24205776, 0.23828046, 0.25874835))
)


def present(root: Path) -> Path | None:
    folder = root / FOLDER
    return folder if all((folder / part).is_dir() for part in PARTS) else None


def load(root: Path, *, valid: bool = True) -> Dataset:
    """All 270,000 images; `valid=False` leaves out the publisher's validation part. Only its test part is test."""
    folder = present(root)
    if folder is None:
        raise AdafedError(missing(root))
    parts = [part for part in PARTS if valid or part != "valid"]
    files = {part: _files(folder / part) for part in parts}

    def build(draft: store.Draft) -> None:
        for part, labelled in files.items():
            append_images(draft, labelled, lambda image: exact(image, 32), is_test=part == "test")

    sources = [path for labelled in files.values() for path, _ in labelled]
    return store.cached(RECIPE, root, sources, build)


def missing(root: Path) -> str:
    return (
        f"CINIC-10 is not in {root}: get {REMOTE.filename} from {PAGE} and put it there or unpack it to "
        f"{root / FOLDER}, or allow the download (data.download = true, --download of reproduce)."
    )


def _files(folder: Path) -> list[tuple[Path, int]]:
    absent = [name for name in CLASSES if not (folder / name).is_dir()]
    if absent:
        raise AdafedError(f"{folder} lacks the class folder {absent[0]!r}, so it is not the whole of CINIC-10.")
    return [(path, label) for label, name in enumerate(CLASSES) for path in sorted((folder / name).glob("*.png"))]
