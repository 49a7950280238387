"""CIFAR from both published versions, and the reader of its pickles, which must never run anything."""

from __future__ import annotations

import io
import pickletools
from pathlib import Path

import numpy as np
import published
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adafed.data import cifar
from adafed.errors import AdafedError

BATCH = {b"labels": [3, 300, 70_000, -1], b"name": b"x" * 300, b"data": np.arange(24, dtype=np.uint8).reshape(4, 6)}


@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
@pytest.mark.parametrize("version", ["binary", "python"])
def test_round_trip(tmp_path: Path, name: str, version: str) -> None:
    made = published.cifar(tmp_path, name, version)
    dataset = cifar.load(name, tmp_path, verify=False)
    np.testing.assert_array_equal(dataset.inputs, made.inputs)
    np.testing.assert_array_equal(dataset.targets, made.targets)
    np.testing.assert_array_equal(dataset.is_test, made.is_test)
    assert dataset.classes == {"cifar10": 10, "cifar100": 100}[name]


@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
def test_both_versions_are_the_same_data_set(tmp_path: Path, name: str) -> None:
    for version in ("binary", "python"):
        published.cifar(tmp_path, name, version)
    checksums = {cifar.load(name, tmp_path, version=kind, verify=False).checksum for kind in ("binary", "python")}
    assert len(checksums) == 1


def test_files_other_than_the_published_ones_are_refused_unless_meant(tmp_path: Path) -> None:
    published.cifar(tmp_path)
    with pytest.raises(AdafedError, match=r"bytes instead of 30,730,000.*verify=False"):
        cifar.load("cifar10", tmp_path)


def test_altered_file_of_the_right_size_is_refused(tmp_path: Path) -> None:
    published.cifar(tmp_path)
    (tmp_path / "cifar-10-batches-bin" / "data_batch_1.bin").write_bytes(bytes(30_730_000))
    with pytest.raises(AdafedError, match=r"MD5 .* instead of 5dd7e06a14cb22eb9f671a540d1b7c25"):
        cifar.load("cifar10", tmp_path)


@pytest.mark.parametrize("version", ["binary", "python"])
def test_truncated_file_is_one_sentence(tmp_path: Path, version: str) -> None:
    published.cifar(tmp_path, "cifar100", version)
    file = next(tmp_path.glob("*/test*"))
    file.write_bytes(file.read_bytes()[:-5])
    with pytest.raises(AdafedError, match="truncated"):
        cifar.load("cifar100", tmp_path, verify=False)


def test_another_version_under_this_name_is_one_sentence(tmp_path: Path) -> None:
    """CIFAR-100's records in CIFAR-10's files: the length or, should that fit, the labels give it away."""
    published.cifar(tmp_path)
    wrong = np.full((3073, 3074), 200, np.uint8)
    (tmp_path / "cifar-10-batches-bin" / "test_batch.bin").write_bytes(wrong.tobytes())
    with pytest.raises(AdafedError, match="label 200, outside its 10 classes"):
        cifar.load("cifar10", tmp_path, verify=False)


def test_missing_set_says_where_to_get_it_and_where_to_put_it(tmp_path: Path) -> None:
    with pytest.raises(AdafedError, match=r"cs.toronto.edu") as caught:
        cifar.load("cifar10", tmp_path)
    assert str(tmp_path / "cifar-10-batches-bin") in str(caught.value)


def test_unknown_version_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AdafedError, match="'binary' or 'python'"):
        cifar.load("cifar10", tmp_path, version="matlab")


def test_batch_reads_back() -> None:
    batch = cifar.read_batch(published.python2_pickle(BATCH))
    np.testing.assert_array_equal(batch.pop(b"data"), BATCH[b"data"])
    assert batch == {key: value for key, value in BATCH.items() if key != b"data"}


def test_batch_is_a_pickle_as_python_2_wrote_it() -> None:
    """The generator is only worth something if its output is a well-formed pickle."""
    pickletools.dis(published.python2_pickle(BATCH), out=io.StringIO())


HARMFUL = {
    "a global that runs commands": b"\x80\x02cos\nsystem\n(U\x04truetR.",
    "an eval": b"\x80\x02c__builtin__\neval\n(U\x011tR.",
    "an instance": b"\x80\x02(ios\nsystem\n.",
    "a new object": b"\x80\x02cnumpy\nndarray\n)\x81.",
    "a persistent id": b"\x80\x02U\x01xQ.",
    "an extension code": b"\x80\x02\x82\x01.",
    "a newer protocol": b"\x80\x04\x95\x00\x00\x00\x00\x00\x00\x00\x00}.",
    "a unicode string": b"\x80\x02X\x01\x00\x00\x00x.",
    "an object array": published.python2_pickle(BATCH).replace(b"U\x02u1", b"U\x02O8"),
    "a call of ndarray": b"\x80\x02cnumpy\nndarray\nK\x01\x85R.",
    "a state for a list": b"\x80\x02]K\x01b.",
    "not a dict": b"\x80\x02K\x01.",
}


@pytest.mark.parametrize("blob", HARMFUL.values(), ids=HARMFUL.keys())
def test_everything_else_is_refused(blob: bytes) -> None:
    with pytest.raises(AdafedError, match=r"^the file is refused: .*, which no CIFAR batch contains.$"):
        cifar.read_batch(blob)


@given(st.integers(0, len(published.python2_pickle(BATCH)) - 1), st.integers(0, 255))
def test_any_damage_is_one_sentence_or_a_dict(place: int, byte: int) -> None:
    blob = bytearray(published.python2_pickle(BATCH))
    blob[place] = byte
    try:
        told = str(type(cifar.read_batch(bytes(blob))))
    except AdafedError as error:
        told = str(error)
    assert "\n" not in told


@given(st.integers(0, len(published.python2_pickle(BATCH)) - 1))
def test_any_truncation_is_one_sentence(length: int) -> None:
    with pytest.raises(AdafedError, match="truncated or corrupt"):
        cifar.read_batch(published.python2_pickle(BATCH)[:length])
