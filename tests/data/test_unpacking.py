"""Files that unpack to far more than they are, claim more than they hold, or nest deeper than Python's stack."""

from __future__ import annotations

import gzip
import io
import json
import resource
import struct
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adafed import AdafedError
from adafed.data import cifar, femnist, unpacking
from adafed.data.download import unpack
from adafed.data.fashion import read_idx
from adafed.data.folder import FolderFederation
from adafed.data.label_noise import read_columns
from adafed.data.shakespeare import load as load_shakespeare
from adafed.data.synthetic import SyntheticFederation

GIGABYTE = 2**30


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


@pytest.fixture
def in_proportion() -> Any:
    """What is read takes no more memory than the little that any file may."""
    before = peak()
    yield
    assert peak() - before < 2 * unpacking.HARMLESS


def zeros(path: Path, header: bytes, size: int, level: int = 9) -> Path:
    with gzip.open(path, "wb", compresslevel=level) as file:
        file.write(header)
        for _ in range(size // 2**24):
            file.write(bytes(2**24))
    return path


def test_a_gzip_bomb_is_refused(tmp_path: Path, in_proportion: None) -> None:
    header = bytes((0, 0, 8, 3)) + struct.pack(">3I", GIGABYTE // 1024, 32, 32)
    path = zeros(tmp_path / "images.gz", header, GIGABYTE, level=1)
    with pytest.raises(AdafedError, match=r"unpacks to .* GB, more than 100 times as much"):
        read_idx(path, 3)


def test_dimensions_whose_product_overflows_are_told(tmp_path: Path) -> None:
    path = tmp_path / "images"
    path.write_bytes(bytes((0, 0, 8, 3)) + struct.pack(">3I", 2**31, 2**31, 4) + b"1234")
    with pytest.raises(AdafedError, match="4 bytes for 18,446,744,073,709,551,616 values"):
        read_idx(path, 3)


def npz(path: Path, members: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, content in members.items():
            with archive.open(name, "w", force_zip64=True) as file:
                file.write(content)
    return path


def npy(shape: str, kind: str = "|u1", body: bytes = b"") -> bytes:
    header = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + body


def array(content: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, content)
    return file.getvalue()


LABELS = array(np.arange(20) % 2)


def test_a_zip_bomb_is_refused(tmp_path: Path, in_proportion: None) -> None:
    head = npy(f"({GIGABYTE // 1024}, 1024)")
    with zipfile.ZipFile(tmp_path / "a.npz", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        with archive.open("x.npy", "w", force_zip64=True) as file:
            file.write(head)
            for _ in range(GIGABYTE // 2**24):
                file.write(bytes(2**24))
        archive.writestr("y.npy", npy(f"({GIGABYTE // 1024},)", "<i8", bytes(8 * (GIGABYTE // 1024))))
    with pytest.raises(AdafedError, match=r"x\.npy has .* bytes and unpacks to 1\.1 GB"):
        FolderFederation(tmp_path)
    with pytest.raises(AdafedError, match=r"does not hold columns"):
        read_columns(tmp_path / "a.npz")


@pytest.mark.parametrize(
    ("members", "told"),
    [
        ({"x.npy": npy("(1000000000, 64)"), "y.npy": LABELS}, "cut short or too long"),
        ({"x.npy": npy("(" * 5000), "y.npy": LABELS}, "not a readable npz file"),
        ({"x.npy": npy("[" * 5000 + "]" * 4000), "y.npy": LABELS}, "not a readable npz file"),
        ({"x.npy": npy("(20, 'a')"), "y.npy": LABELS}, "not a readable npz file"),
        ({"x.npy": npy("(-1, 4)"), "y.npy": LABELS}, "not a readable npz file"),
        ({"x.npy": npy("(20, 4)", "|O"), "y.npy": LABELS}, "not unpickled"),
        ({"x.npy": array(np.zeros((20, 0))), "y.npy": LABELS}, "a sample must have at least one number"),
        ({"x.npy": array(np.zeros((20, 2))), "x": array(np.zeros((20, 3))), "y.npy": LABELS}, "an array twice"),
        ({"x.npy": b"", "y.npy": LABELS}, "not a readable npz file"),
        ({}, "'x' is missing"),
    ],
)
def test_a_wrong_npz_is_told(members: dict[str, bytes], told: str, tmp_path: Path) -> None:
    npz(tmp_path / "a.npz", members)
    with pytest.raises(AdafedError, match=told):
        FolderFederation(tmp_path)


def test_archives_have_a_limit(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "many.tar.gz", "w:gz") as tar:
        member = tarfile.TarInfo("data/zeros")
        member.size = 2**29
        with open("/dev/zero", "rb") as source:
            tar.addfile(member, source)
    with (
        zipfile.ZipFile(tmp_path / "many.zip", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open("data/zeros", "w", force_zip64=True) as file,
    ):
        for _ in range(32):
            file.write(bytes(2**24))
    for name in ("many.tar.gz", "many.zip"):
        with pytest.raises(AdafedError, match=r"more than 20 times as much; it is refused"):
            unpack(tmp_path / name, "data")
        assert not (tmp_path / "data").exists()
        assert not list(tmp_path.glob(".data*"))


def leaf(folder: Path, document: Any) -> Path:
    for part in ("train", "test"):
        (folder / "femnist" / part).mkdir(parents=True, exist_ok=True)
        text = document if isinstance(document, str) else json.dumps(document)
        (folder / "femnist" / part / "a.json").write_text(text)
    return folder


def user(x: Any, y: Any = (1,), name: Any = "a", count: Any = 1) -> dict[str, Any]:
    return {"users": [name], "num_samples": [count], "user_data": {"a": {"x": x, "y": y}}}


@pytest.mark.parametrize(
    "document",
    [
        user([[10**400] * 784]),
        user([[0.5] * 784], [10**400]),
        user([[0.5] * 784], name=["a"]),
        user([[0.5] * 784], name={"a": 1}),
        user([[0.5] * 784], name=3),
        user([[0.5] * 784], count=10**9),
        user([[0.5] * 784], count="1"),
        user([[[0.5]] * 784, 1]),
        "[" * 100_000,
        '{"users": ' + "[" * 50_000 + "]" * 50_000 + ', "num_samples": [], "user_data": {}}',
        '{"users": [1' + "0" * 5000 + "]}",
        "\x00",
    ],
    ids=range(12),
)
def test_wrong_leaf_json_is_told(document: Any, tmp_path: Path) -> None:
    with pytest.raises(AdafedError):
        femnist.load(leaf(tmp_path, document))


def test_deep_json_of_roles_is_told(tmp_path: Path) -> None:
    (tmp_path / "shakespeare").mkdir()
    (tmp_path / "shakespeare" / "by_role.json").write_text('{"a":' * 100_000)
    with pytest.raises(AdafedError, match="not JSON"):
        load_shakespeare(tmp_path)


@pytest.mark.parametrize(
    "options",
    [{"clients": 10**9}, {"features": 10**9}, {"classes": 10**9}, {"samples": 10**12},
     {"samples": 10**8, "features": 10**5}, {"classes": 10**6, "features": 10**6}],
)  # fmt: skip
def test_a_synthetic_federation_has_a_limit(options: dict[str, int]) -> None:
    with pytest.raises(AdafedError, match=r"must be at most|too much for one client"):
        SyntheticFederation(**options)  # type: ignore[arg-type]


def test_a_pickle_that_names_more_than_an_array_is_not_run(tmp_path: Path) -> None:
    import pickle

    class Evil:
        def __reduce__(self) -> Any:
            return (Path.touch, (tmp_path / "touched",))

    with pytest.raises(AdafedError, match="refused"):
        cifar.read_batch(pickle.dumps({b"data": Evil()}, protocol=2))
    assert not (tmp_path / "touched").exists()
