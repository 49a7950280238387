"""CIFAR-10 and CIFAR-100 (Krizhevsky, 2009), from the published binary or python version; both give the same arrays.

The python version is a pickle, and nothing here unpickles: `read_batch` walks the few opcodes those files consist of
and builds bytes, lists, dicts and one uint8 array. It recognises numpy's three names as symbols and calls nothing.
"""

from __future__ import annotations

import pickletools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from adafed.data import store
from adafed.data.base import Array, Dataset, Normalisation
from adafed.data.download import Remote
from adafed.errors import AdafedError

PAGE = "https://www.cs.toronto.edu/~kriz/cifar.html"
_PIXELS = 3 * 32 * 32


@dataclass(frozen=True)
class Version:
    """One published version: its archive, its folder, its files with the publisher's checksums."""

    archive: Remote
    folder: str
    train: dict[str, store.Published]
    test: dict[str, store.Published]
    label_bytes: int  # before each image of the binary version; the fine label is the last of them
    label_key: bytes = b""  # in the python version

    @property
    def files(self) -> dict[str, store.Published]:
        return self.train | self.test


def _files(size: int | None, *named: tuple[str, str]) -> dict[str, store.Published]:
    return {name: store.Published(md5, size) for name, md5 in named}


# MD5 of the archives as on the publisher's page; those of the single files are of the files in these archives.
_SITE = "https://www.cs.toronto.edu/~kriz/"
VERSIONS: dict[str, dict[str, Version]] = {
    "cifar10": {
        "binary": Version(
            Remote(_SITE + "cifar-10-binary.tar.gz", "c32a1d4ab5d03f1284b67883e8d87530", 170_052_171),
            "cifar-10-batches-bin",
            _files(
                30_730_000,
                ("data_batch_1.bin", "5dd7e06a14cb22eb9f671a540d1b7c25"),
                ("data_batch_2.bin", "5ea93a67294ea407fff1d09f752e9692"),
                ("data_batch_3.bin", "942cd6a4bcdd0dd3c604fbe906cb4421"),
                ("data_batch_4.bin", "ae636b3ba5c66a11e91e8cb52e771fcb"),
                ("data_batch_5.bin", "53f37980c15c3d472c316c40844f3f0d"),
            ),
            _files(30_730_000, ("test_batch.bin", "803d5f7f4d78ea53de84dbe85f74fb6d")),
            label_bytes=1,
        ),
        "python": Version(
            Remote(_SITE + "cifar-10-python.tar.gz", "c58f30108f718f92721af3b95e74349a", 170_498_071),
            "cifar-10-batches-py",
            _files(
                None,
                ("data_batch_1", "c99cafc152244af753f735de768cd75f"),
                ("data_batch_2", "d4bba439e000b95fd0a9bffe97cbabec"),
                ("data_batch_3", "54ebc095f3ab1f0389bbae665268c751"),
                ("data_batch_4", "634d18415352ddfa80567beed471001a"),
                ("data_batch_5", "482c414d41f54cd18b22e5b47cb7c3cb"),
            ),
            _files(None, ("test_batch", "40351d587109b95175f43aff81a1287e")),
            label_bytes=0,
            label_key=b"labels",
        ),
    },
    "cifar100": {
        "binary": Version(
            Remote(_SITE + "cifar-100-binary.tar.gz", "03b5dce01913d631647c71ecec9e9cb8", 168_513_733),
            "cifar-100-binary",
            _files(153_700_000, ("train.bin", "6172c7755cfe09b2fe270c85cebc1b15")),
            _files(30_740_000, ("test.bin", "4499cfba6c016c1be1438163640a0898")),
            label_bytes=2,
        ),
        "python": Version(
            Remote(_SITE + "cifar-100-python.tar.gz", "eb9058c3a382ffc7106e4002c42a8d85", 169_001_437),
            "cifar-100-python",
            _files(None, ("train", "16019d7e3df5f24257cddd939b257f8d")),
            _files(None, ("test", "f0ef6b0ae62326f3e7ffdfab6717acfc")),
            label_bytes=0,
            label_key=b"fine_labels",
        ),
    },
}

# Mean and standard deviation of each channel over the 50,000 training images, to four places (rounding of a direct
# computation; the value .2023 often seen for CIFAR-10's red channel is a mean of per-image deviations).
RECIPES = {
    "cifar10": store.Recipe("cifar10", 10, Normalisation((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616))),
    "cifar100": store.Recipe("cifar100", 100, Normalisation((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762))),
}


def present(name: str, root: Path, version: str | None = None) -> Version | None:
    """The version whose folder is complete, the binary one first."""
    for kind, found in VERSIONS[name].items():
        if version in (None, kind) and all((root / found.folder / file).is_file() for file in found.files):
            return found
    return None


def load(name: str, root: Path, *, version: str | None = None, verify: bool = True) -> Dataset:
    """`verify=False` accepts files that differ from the published ones, such as the first images only."""
    if version not in (None, "binary", "python"):
        raise AdafedError(f"version = {version!r} of {name} is unknown; take 'binary' or 'python'.")
    found = present(name, root, version)
    if found is None:
        raise AdafedError(missing(name, root))
    folder = root / found.folder

    def build(draft: store.Draft) -> None:
        for file in found.files:
            images, labels = _read(folder / file, found)
            draft.append(images, labels, is_test=file in found.test)

    return store.cached(
        RECIPES[name],
        root,
        [folder / file for file in found.files],
        build,
        published={folder / file: facts for file, facts in found.files.items()},
        verify=verify,
    )


def missing(name: str, root: Path) -> str:
    binary = VERSIONS[name]["binary"]
    title = name.replace("cifar", "CIFAR-")
    return (
        f"{title} is not in {root}: get {binary.archive.filename} from {PAGE} and put it there or unpack it to "
        f"{root / binary.folder}, or allow the download (data.download = true, --download of reproduce)."
    )


def _read(path: Path, version: Version) -> tuple[Array, Array]:
    blob = path.read_bytes()
    if version.label_bytes:
        record = version.label_bytes + _PIXELS
        if not blob or len(blob) % record:
            raise AdafedError(
                f"{path} is truncated or of another data set: its {len(blob):,} bytes are not a whole number of "
                f"{record}-byte records."
            )
        rows = np.frombuffer(blob, np.uint8).reshape(-1, record)
        return rows[:, version.label_bytes :].reshape(-1, 3, 32, 32), rows[:, version.label_bytes - 1]
    batch = read_batch(blob, path)
    images, labels = batch.get(b"data"), batch.get(version.label_key)
    if not isinstance(images, np.ndarray) or not isinstance(labels, list) or images.shape != (len(labels), _PIXELS):
        raise AdafedError(
            f"{path} is not a python batch of this data set: it needs 'data' of {_PIXELS} bytes an image and as many "
            f"{version.label_key.decode()!r}."
        )
    if not all(type(label) is int for label in labels):
        raise AdafedError(f"{path} has labels that are not integers.")
    return images.reshape(-1, 3, 32, 32), np.asarray(labels, np.int64)


_SYMBOLS = {
    "numpy.core.multiarray _reconstruct": "reconstruct",
    "numpy._core.multiarray _reconstruct": "reconstruct",
    "numpy ndarray": "ndarray",
    "numpy dtype": "dtype",
}
_INTEGERS = {"BININT", "BININT1", "BININT2"}
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_TUPLES = {"EMPTY_TUPLE": 0, "TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}


@dataclass(frozen=True)
class _Symbol:
    name: str


class _Pending:
    """An array between the opcode that announces it and the one that brings its bytes."""

    value: Array | None = None


class _Refused(Exception):
    """Anything a CIFAR batch has no need of."""


def read_batch(blob: bytes, path: Path | str = "the file") -> dict[bytes, Any]:
    """The dict a CIFAR python batch holds, built from its opcodes without executing any of them."""
    try:
        return _walk(blob)
    except _Refused as error:
        raise AdafedError(f"{path} is refused: {error}, which no CIFAR batch contains.") from error
    except (ValueError, IndexError, KeyError, TypeError, MemoryError) as error:
        raise AdafedError(f"{path} is truncated or corrupt: it is not a whole CIFAR python batch.") from error


def _walk(blob: bytes) -> dict[bytes, Any]:
    stack: list[Any] = []
    marks: list[int] = []
    memo: dict[int, Any] = {}

    def since_mark() -> list[Any]:
        start = marks.pop()
        items = stack[start:]
        del stack[start:]
        return items

    argument: Any
    for opcode, argument, _ in pickletools.genops(blob):
        name = opcode.name
        if name == "PROTO":
            if argument not in (2, 3):
                raise _Refused(f"it has pickle protocol {argument}")
        elif name in _INTEGERS:
            stack.append(argument)
        elif name in ("SHORT_BINSTRING", "BINSTRING"):
            stack.append(argument.encode("latin-1"))
        elif name in ("SHORT_BINBYTES", "BINBYTES"):
            stack.append(argument)
        elif name in _CONSTANTS:
            stack.append(_CONSTANTS[name])
        elif name in ("BINPUT", "LONG_BINPUT"):
            memo[argument] = stack[-1]
        elif name in ("BINGET", "LONG_BINGET"):
            stack.append(memo[argument])
        elif name == "MARK":
            marks.append(len(stack))
        elif name == "TUPLE":
            stack.append(tuple(since_mark()))
        elif name in _TUPLES:
            start = len(stack) - _TUPLES[name]
            stack[start:] = [tuple(stack[start:])]
        elif name == "EMPTY_LIST":
            stack.append([])
        elif name == "EMPTY_DICT":
            stack.append({})
        elif name == "APPEND":
            item = stack.pop()
            _expect(stack[-1], list).append(item)
        elif name == "APPENDS":
            items = since_mark()
            _expect(stack[-1], list).extend(items)
        elif name == "SETITEM":
            value, key = stack.pop(), stack.pop()
            _expect(stack[-1], dict)[key] = value
        elif name == "SETITEMS":
            items = since_mark()
            _expect(stack[-1], dict).update(zip(items[::2], items[1::2], strict=True))
        elif name == "GLOBAL":
            if argument not in _SYMBOLS:
                raise _Refused(f"it names {str(argument).replace(' ', '.')}")
            stack.append(_Symbol(_SYMBOLS[argument]))
        elif name == "REDUCE":
            arguments, symbol = stack.pop(), stack.pop()
            stack.append(_announce(symbol, arguments))
        elif name == "BUILD":
            state = stack.pop()
            _complete(stack[-1], state)
        elif name == "STOP":
            break
        else:
            raise _Refused(f"it uses the pickle opcode {name}")
    (result,) = stack
    pairs = _expect(result, dict).items()
    return {key: value.value if isinstance(value, _Pending) else value for key, value in pairs}


def _expect(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise _Refused(f"it has a {type(value).__name__} where a {kind.__name__} belongs")
    return value


def _announce(symbol: Any, arguments: Any) -> Any:
    if symbol == _Symbol("reconstruct") and arguments[0] == _Symbol("ndarray"):
        return _Pending()
    if symbol == _Symbol("dtype") and arguments[0] == b"u1":
        return _Symbol("uint8")
    raise _Refused("it calls something other than the making of a uint8 array")


def _complete(target: Any, state: Any) -> None:
    if target == _Symbol("uint8"):
        return  # byte order and alignment: a byte has neither
    if not isinstance(target, _Pending):
        raise _Refused("it sets the state of something other than an array")
    _, shape, kind, fortran, raw = state
    if kind != _Symbol("uint8") or type(raw) is not bytes:
        raise _Refused("it has an array of another type than uint8")
    target.value = np.frombuffer(raw, np.uint8).reshape(shape, order="F" if fortran else "C")
