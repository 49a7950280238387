"""Small data sets in their publishers' formats, for round trips: each function writes files and says what is in them.

The files are not the published ones, so sets with published checksums are loaded from here with `verify=False`.
"""

from __future__ import annotations

import gzip
import json
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

Array = npt.NDArray[Any]
CINIC_CLASSES = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]


@dataclass(frozen=True)
class Made:
    """What a loader should find, in its order."""

    inputs: Array
    targets: Array
    is_test: Array | None = None
    groups: Array | None = None
    group_names: tuple[str, ...] | None = None


def images(count: int, classes: int, shape: tuple[int, ...], seed: int = 0) -> tuple[Array, Array]:
    """Random pixels; the classes come round in turn so that each occurs."""
    generator = np.random.default_rng(seed)
    return generator.integers(0, 256, (count, *shape), dtype=np.uint8), np.arange(count) % classes


def _parts(train: int, test: int) -> Array:
    return np.arange(train + test) >= train


# CIFAR ----------------------------------------------------------------------------------------------------------------


def cifar(root: Path, name: str = "cifar10", version: str = "binary", train: int = 50, test: int = 20) -> Made:
    """`name` is cifar10 or cifar100, `version` binary or python; `train` is a multiple of 5."""
    x, y = images(train + test, {"cifar10": 10, "cifar100": 100}[name], (3, 32, 32))
    if name == "cifar10":
        stems = [f"data_batch_{n}" for n in range(1, 6)] + ["test_batch"]
        ends = [train // 5 * n for n in range(1, 6)] + [train + test]
        folder = root / {"binary": "cifar-10-batches-bin", "python": "cifar-10-batches-py"}[version]
    else:
        stems, ends = ["train", "test"], [train, train + test]
        folder = root / {"binary": "cifar-100-binary", "python": "cifar-100-python"}[version]
    folder.mkdir(parents=True)
    start = 0
    for stem, end in zip(stems, ends, strict=True):
        pixels, labels = x[start:end].reshape(end - start, -1), y[start:end].astype(np.uint8)[:, None]
        if version == "binary":
            coarse = [labels // 5] if name == "cifar100" else []
            (folder / f"{stem}.bin").write_bytes(np.concatenate([*coarse, labels, pixels], axis=1).tobytes())
        else:
            key = {"cifar10": b"labels", "cifar100": b"fine_labels"}[name]
            batch = {b"batch_label": stem.encode(), key: [int(label) for label in labels[:, 0]], b"data": pixels}
            (folder / stem).write_bytes(python2_pickle(batch))
        start = end
    return Made(x, y, _parts(train, test))


def python2_pickle(value: Any) -> bytes:
    """Protocol 2 as Python 2 wrote it, which CIFAR's python version is in: byte strings, and numpy's names."""
    memo = iter(range(1 << 16))

    def put() -> bytes:
        number = next(memo)
        return b"q" + bytes([number]) if number < 256 else b"r" + struct.pack("<I", number)

    def string(raw: bytes) -> bytes:
        head = b"U" + bytes([len(raw)]) if len(raw) < 256 else b"T" + struct.pack("<i", len(raw))
        return head + raw + put()

    def integer(number: int) -> bytes:
        if 0 <= number < 256:
            return b"K" + bytes([number])
        return b"M" + struct.pack("<H", number) if 0 <= number < 65536 else b"J" + struct.pack("<i", number)

    def walk(item: Any) -> bytes:
        if isinstance(item, bytes):
            return string(item)
        if isinstance(item, int):
            return integer(item)
        if isinstance(item, list):
            return b"]" + put() + b"(" + b"".join(walk(each) for each in item) + b"e"
        if isinstance(item, dict):
            return b"}" + put() + b"(" + b"".join(walk(key) + walk(each) for key, each in item.items()) + b"u"
        dtype = b"cnumpy\ndtype\n" + put() + string(b"u1") + b"K\x00K\x01\x87" + put() + b"R" + put()
        dtype += b"(K\x03" + string(b"|") + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00t" + put() + b"b"
        shape = b"".join(integer(length) for length in item.shape) + b"\x86" + put()
        announced = b"cnumpy.core.multiarray\n_reconstruct\n" + put() + b"cnumpy\nndarray\n" + put()
        announced += b"K\x00\x85" + put() + string(b"b") + b"\x87" + put() + b"R" + put()
        return announced + b"(K\x01" + shape + dtype + b"\x89" + string(item.tobytes()) + b"t" + put() + b"b"

    return b"\x80\x02" + walk(value) + b"."


def cifar_n(root: Path, name: str, clean: Array, suffix: str = ".npz") -> dict[str, Array]:
    """Human labels for the training images with these clean labels; about a third of each kind are wrong."""
    classes = {"cifar10": 10, "cifar100": 100}[name]
    kinds = {
        "cifar10": ("aggre_label", "worse_label", "random_label1", "random_label2", "random_label3"),
        "cifar100": ("noisy_label",),
    }[name]
    generator = np.random.default_rng(1)
    columns = {"clean_label": clean.astype(np.uint8)}
    for kind in kinds:
        wrong = generator.random(len(clean)) < 1 / 3
        columns[kind] = np.where(wrong, (clean + 1) % classes, clean).astype(np.uint8)
    folder = root / "cifar-n"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}n{suffix}"
    if suffix == ".npz":
        np.savez(path, **columns)
    else:
        rows = [list(columns), *(list(map(str, row)) for row in zip(*columns.values(), strict=True))]
        path.write_text("\n".join(",".join(row) for row in rows) + "\n")
    return columns


# Fashion-MNIST --------------------------------------------------------------------------------------------------------


def idx(array: Array) -> bytes:
    header = bytes((0, 0, 8, array.ndim)) + struct.pack(f">{array.ndim}I", *array.shape)
    return header + array.astype(np.uint8).tobytes()


def fashion(root: Path, train: int = 30, test: int = 10, zipped: bool = True) -> Made:
    x, y = images(train + test, 10, (1, 28, 28))
    folder = root / "FashionMNIST" / "raw"
    folder.mkdir(parents=True)
    for stem, rows in (("train", slice(0, train)), ("t10k", slice(train, None))):
        for kind, array in (("images-idx3", x[rows, 0]), ("labels-idx1", y[rows])):
            raw = idx(array)
            if zipped:
                (folder / f"{stem}-{kind}-ubyte.gz").write_bytes(gzip.compress(raw))
            else:
                (folder / f"{stem}-{kind}-ubyte").write_bytes(raw)
    return Made(x, y, _parts(train, test))


# LEAF -----------------------------------------------------------------------------------------------------------------


def leaf(folder: Path, part: str, users: dict[str, tuple[list[Any], list[Any]]], users_a_file: int = 2) -> None:
    """LEAF's JSON, split over files."""
    (folder / part).mkdir(parents=True, exist_ok=True)
    names = list(users)
    for number, start in enumerate(range(0, len(names), users_a_file)):
        chosen = names[start : start + users_a_file]
        document = {
            "users": chosen,
            "num_samples": [len(users[user][1]) for user in chosen],
            "user_data": {user: {"x": users[user][0], "y": users[user][1]} for user in chosen},
        }
        (folder / part / f"all_data_{number}_niid_0_keep_0_{part}_9.json").write_text(json.dumps(document))


def femnist(root: Path, writers: int = 5, train: int = 8, test: int = 3) -> Made:
    x, y = images(writers * (train + test), 62, (1, 28, 28))
    is_test = np.arange(len(y)) >= writers * train
    groups = np.concatenate([np.repeat(np.arange(writers), train), np.repeat(np.arange(writers), test)])
    names = tuple(f"f{number:04d}_07" for number in range(writers))
    for part, chosen in (("train", ~is_test), ("test", is_test)):
        users = {}
        for group, name in enumerate(names):
            rows = np.flatnonzero(chosen & (groups == group))
            users[name] = ((x[rows].reshape(len(rows), 784) / 255).tolist(), y[rows].tolist())
        leaf(root / "femnist", part, users)
    return Made(x, y, is_test, groups, names)


ROLES = {
    "HAMLET_HAMLET": "To be, or not to be: that is the question: Whether 'tis nobler in the mind to suffer The slings "
    "and arrows of outrageous fortune, Or to take arms against a sea of troubles, And by opposing end them?",
    "HAMLET_GHOST": "I am thy father's spirit, Doomed for a certain term to walk the night, And for the day confined "
    "to fast in fires, Till the foul crimes done in my days of nature Are burnt and purged away.",
    "MACBETH_PORTER": "Knock, knock!",
}


def shakespeare_roles(root: Path) -> dict[str, str]:
    """{role: text}; the last role is too short for a window."""
    folder = root / "shakespeare"
    folder.mkdir(parents=True)
    (folder / "by_role.json").write_text(json.dumps(ROLES))
    return ROLES


def shakespeare_texts(root: Path) -> dict[str, str]:
    """LEAF's raw texts: a file a role, with line breaks and indents that LEAF closes."""
    folder = root / "shakespeare" / "by_play_and_character"
    folder.mkdir(parents=True)
    for role, text in ROLES.items():
        (folder / f"{role}.txt").write_text(text.replace(", ", ",\n   "))
    return ROLES


def shakespeare_leaf(root: Path, test: int = 10) -> dict[str, str]:
    """LEAF's JSON: the last `test` windows of each role are its test part."""
    for part in ("train", "test"):
        users = {}
        for role, text in ROLES.items():
            starts = range(max(len(text) - 80, 0))
            chosen = starts[:-test] if part == "train" else starts[-test:]
            users[role] = ([text[i : i + 80] for i in chosen], [text[i + 80] for i in chosen])
        leaf(root / "shakespeare", part, users)
    return ROLES


# Image trees ----------------------------------------------------------------------------------------------------------


def _save(path: Path, pixels: Array) -> Array:
    """Write an image and return it as it reads back, (channels, height, width): JPEG changes pixels."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path, format="PNG" if path.suffix == ".png" else "JPEG")
    with Image.open(path) as image:
        return np.asarray(image.convert("RGB")).transpose(2, 0, 1)


def tinyimagenet(root: Path, classes: int = 3, train: int = 12, test: int = 2) -> Made:
    """Some are grey, as some of the published ones are; twelve a class, so that image_2 and image_10 occur."""
    generator = np.random.default_rng(2)
    folder = root / "tiny-imagenet-200"
    wnids = [f"n{number:08d}" for number in range(classes, 0, -1)]
    inputs, targets, rows = [], [], []
    for label, wnid in enumerate(wnids):
        for number in range(train):
            shape = (64, 64) if number == 0 else (64, 64, 3)
            pixels = generator.integers(0, 256, shape, dtype=np.uint8)
            inputs.append(_save(folder / "train" / wnid / "images" / f"{wnid}_{number}.JPEG", pixels))
            targets.append(label)
    for number in range(classes * test):
        pixels = generator.integers(0, 256, (64, 64, 3), dtype=np.uint8)
        inputs.append(_save(folder / "val" / "images" / f"val_{number}.JPEG", pixels))
        targets.append(number % classes)
        rows.append(f"val_{number}.JPEG\t{wnids[number % classes]}\t0\t0\t63\t63")
    (folder / "val" / "val_annotations.txt").write_text("\n".join(rows) + "\n")
    (folder / "wnids.txt").write_text("\n".join(wnids) + "\n")
    return Made(np.stack(inputs), np.array(targets), _parts(classes * train, classes * test))


def cinic10(root: Path, each: int = 2) -> Made:
    generator = np.random.default_rng(3)
    inputs, targets, is_test = [], [], []
    for part in ("train", "valid", "test"):
        for label, name in enumerate(CINIC_CLASSES):
            for number in range(each):
                pixels = generator.integers(0, 256, (32, 32, 3), dtype=np.uint8)
                inputs.append(_save(root / "CINIC-10" / part / name / f"cifar10-{part}-{number}.png", pixels))
                targets.append(label)
                is_test.append(part == "test")
    return Made(np.stack(inputs), np.array(targets), np.array(is_test))


def clothing1m(root: Path, train: int = 14, test: int = 6) -> Made:
    """Images of one colour each, so that any resize keeps them; noisy labels differ from clean ones."""
    folder = root / "clothing1m"
    keys = [f"images/{number % 10}/{number},{number}.jpg" for number in range(train + test)]
    for number, key in enumerate(keys):
        _save(folder / key, np.full((90, 60 + number, 3), 10 * number, np.uint8))
    noisy = [number % 14 for number in range(train)]
    clean = [(number + 3) % 14 for number in range(train + test)]
    (folder / "annotations").mkdir()
    lists = {
        "noisy_train_key_list": keys[:train],
        "clean_train_key_list": keys[:train],
        "clean_test_key_list": keys[train:],
        "noisy_label_kv": [f"{key} {label}" for key, label in zip(keys, noisy, strict=False)],
        "clean_label_kv": [f"{key} {label}" for key, label in zip(keys, clean, strict=True)],
    }
    for name, lines in lists.items():
        (folder / "annotations" / f"{name}.txt").write_text("\n".join(lines) + "\n")
    shades = np.arange(train + test)[:, None, None, None] * np.full((1, 3, 1, 1), 10)
    return Made(shades.astype(np.uint8), np.array(noisy + clean[train:]), _parts(train, test))
