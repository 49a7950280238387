"""TinyImageNet's tree."""

from __future__ import annotations

from pathlib import Path

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
