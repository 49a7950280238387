"""TinyImageNet's tree."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import published
import pytest
from PIL import Image

from adafed.data import tinyimagenet
from adafed.errors import AdafedError


def test_round_trip(tmp_path: Path) -> None:
    made = published.tinyimagenet(tmp_path)
    dataset = tinyimagenet.load(tmp_path)
    np.testing.assert_array_equal(dataset.inputs, made.inputs)
    np.testing.assert_array_equal(dataset.targets, made.targets)
    np.testing.assert_array_equal(dataset.is_test, made.is_test)


def test_blocks_do_not_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = published.tinyimagenet(tmp_path)
    monkeypatch.setattr(tinyimagenet, "_BLOCK", 7)
    np.testing.assert_array_equal(tinyimagenet.load(tmp_path).inputs, made.inputs)


def test_truncated_image_is_one_sentence(tmp_path: Path) -> None:
    published.tinyimagenet(tmp_path)
    file = tmp_path / "tiny-imagenet-200" / "val" / "images" / "val_1.JPEG"
    file.write_bytes(file.read_bytes()[:500])
    with pytest.raises(AdafedError, match=r"val_1.JPEG is truncated or corrupt"):
        tinyimagenet.load(tmp_path)


def test_image_of_another_size_is_one_sentence(tmp_path: Path) -> None:
    published.tinyimagenet(tmp_path)
    file = tmp_path / "tiny-imagenet-200" / "val" / "images" / "val_1.JPEG"
    Image.new("RGB", (32, 48)).save(file)
    with pytest.raises(AdafedError, match=r"val_1.JPEG has 32 x 48 pixels instead of 64 x 64\.$"):
        tinyimagenet.load(tmp_path)


def test_image_the_annotations_name_must_be_there(tmp_path: Path) -> None:
    published.tinyimagenet(tmp_path)
    (tmp_path / "tiny-imagenet-200" / "val" / "images" / "val_1.JPEG").unlink()
    with pytest.raises(AdafedError, match=r"val_1.JPEG"):
        tinyimagenet.load(tmp_path)


def test_annotation_of_an_unknown_class_is_one_sentence(tmp_path: Path) -> None:
    published.tinyimagenet(tmp_path)
    (tmp_path / "tiny-imagenet-200" / "val" / "val_annotations.txt").write_text("val_0.JPEG\tn99999999\t0\n")
    with pytest.raises(AdafedError, match="line 1"):
        tinyimagenet.load(tmp_path)


def test_missing_set_says_where_to_get_it_and_where_to_put_it(tmp_path: Path) -> None:
    with pytest.raises(AdafedError, match=r"cs231n.stanford.edu") as caught:
        tinyimagenet.load(tmp_path)
    assert str(tmp_path / "tiny-imagenet-200") in str(caught.value)


def _png(width: int, height: int) -> bytes:
    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(bytes(10**6))) + chunk(b"IEND", b"")
    )


@pytest.mark.parametrize(("width", "height"), [(100_000, 100_000), (12_000, 12_000), (8_000, 8_000), (2**31 - 1, 1)])
def test_a_picture_out_of_all_proportion_is_not_decoded(width: int, height: int, tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(_png(width, height))

    def decoded(_: object) -> Any:
        raise AssertionError("it was decoded")

    with pytest.raises(AdafedError, match=r"more than any picture|truncated or corrupt"):
        tinyimagenet.read_image(tmp_path / "a.png", decoded)


def test_what_another_program_would_interpret_is_not_opened(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 64 64\n%%EndComments\nshowpage\n")
    with pytest.raises(AdafedError, match="does not decode as an image"):
        tinyimagenet.read_image(tmp_path / "a.png", np.asarray)
