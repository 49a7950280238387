"""Clothing1M's annotation files and images."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import published
import pytest

from adafed.data import clothing
from adafed.errors import AdafedError


def test_noisy_training_and_clean_test_labels(tmp_path: Path) -> None:
    made = published.clothing1m(tmp_path)
    dataset = clothing.load(tmp_path, size=16)
    assert dataset.inputs.shape == (20, 3, 16, 16)
    assert np.abs(dataset.inputs.astype(int) - made.inputs).max() <= 1  # JPEG may move a colour by one
    np.testing.assert_array_equal(dataset.targets, made.targets)
    np.testing.assert_array_equal(dataset.is_test, made.is_test)


def test_clean_training_labels(tmp_path: Path) -> None:
    published.clothing1m(tmp_path)
    dataset = clothing.load(tmp_path, train="clean", size=8)
    np.testing.assert_array_equal(dataset.targets, (np.arange(20) + 3) % 14)


def test_limit_keeps_the_first_of_each_part(tmp_path: Path) -> None:
    made = published.clothing1m(tmp_path)
    dataset = clothing.load(tmp_path, size=8, limit=4)
    np.testing.assert_array_equal(dataset.targets, np.concatenate([made.targets[:4], made.targets[14:18]]))


def test_crop_is_central(tmp_path: Path) -> None:
    """Only the middle 7/8 of the shorter side is kept: a border in another colour goes."""
    published.clothing1m(tmp_path, train=1, test=1)
    pixels = np.full((64, 128, 3), 200, np.uint8)
    pixels[:, :32] = pixels[:, -32:] = 0
    published._save(tmp_path / "clothing1m" / "images" / "0" / "0,0.jpg", pixels)
    assert clothing.load(tmp_path, size=28).inputs[0].min() > 150


def test_a_margin_is_for_training_and_a_black_frame_around_what_is_tested(tmp_path: Path) -> None:
    """Whole pictures, resized: FedCorr's 256 to train and 224 to test, here 16 and 14."""
    made = published.clothing1m(tmp_path)
    pixels = np.zeros((64, 128, 3), np.uint8)
    pixels[:, 64:] = 200
    published._save(tmp_path / "clothing1m" / "images" / "0" / "0,0.jpg", pixels)
    dataset = clothing.load(tmp_path, size=14, margin=1)
    assert dataset.inputs.shape == (20, 3, 16, 16)
    assert dataset.inputs[0, :, :, :7].max() < 20  # nothing of the picture's sides is cut off
    assert dataset.inputs[0, :, :, 9:].min() > 180
    assert dataset.is_test is not None
    tested = dataset.inputs[dataset.is_test]
    assert np.abs(tested[:, :, 1:-1, 1:-1].astype(int) - made.inputs[14:]).max() <= 1
    assert not tested[:, :, 0].any()
    assert not tested[:, :, :, -1].any()


def test_more_than_the_disk_holds_is_refused(tmp_path: Path) -> None:
    published.clothing1m(tmp_path)
    with pytest.raises(AdafedError, match="smaller size or a limit"):
        clothing.load(tmp_path, size=10_000_000)


@pytest.mark.parametrize("options", [{"train": "dirty"}, {"size": 0}, {"limit": 0}, {"margin": -1}])
def test_bad_options_are_one_sentence(tmp_path: Path, options: dict[str, object]) -> None:
    published.clothing1m(tmp_path)
    with pytest.raises(AdafedError, match=next(iter(options))):
        clothing.load(tmp_path, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("file", "text", "told"),
    [
        ("noisy_label_kv.txt", "images/0/0,0.jpg\n", "line 1, is not"),
        ("noisy_train_key_list.txt", "images/9/9.jpg\n", "has no label"),
        ("noisy_label_kv.txt", "images/0/0,0.jpg 3\n", "has no label"),
    ],
)
def test_spoiled_annotations_are_one_sentence(tmp_path: Path, file: str, text: str, told: str) -> None:
    published.clothing1m(tmp_path)
    (tmp_path / "clothing1m" / "annotations" / file).write_text(text)
    with pytest.raises(AdafedError, match=told):
        clothing.load(tmp_path, size=8)


def test_missing_files_are_named(tmp_path: Path) -> None:
    published.clothing1m(tmp_path)
    (tmp_path / "clothing1m" / "images" / "0" / "0,0.jpg").unlink()
    with pytest.raises(AdafedError, match=r"0,0.jpg"):
        clothing.load(tmp_path, size=8)
    (tmp_path / "clothing1m" / "annotations" / "clean_test_key_list.txt").unlink()
    with pytest.raises(AdafedError, match=r"clean_test_key_list.txt"):
        clothing.load(tmp_path, size=8)


def test_missing_set_says_where_to_get_it_and_where_to_put_it(tmp_path: Path) -> None:
    with pytest.raises(AdafedError, match="Cysu/noisy_label") as caught:
        clothing.load(tmp_path)
    assert str(tmp_path / "clothing1m") in str(caught.value)
