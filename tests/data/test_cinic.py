"""CINIC-10's tree."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import published
import pytest

from adafed.data import cinic
from adafed.errors import AdafedError


def test_round_trip(tmp_path: Path) -> None:
    made = published.cinic10(tmp_path)
    dataset = cinic.load(tmp_path)
    np.testing.assert_array_equal(dataset.inputs, made.inputs)
    np.testing.assert_array_equal(dataset.targets, made.targets)
    np.testing.assert_array_equal(dataset.is_test, made.is_test)


def test_validation_part_can_be_left_out(tmp_path: Path) -> None:
    made = published.cinic10(tmp_path)
    dataset = cinic.load(tmp_path, valid=False)
    third = len(made.targets) // 3
    np.testing.assert_array_equal(dataset.inputs, np.delete(made.inputs, np.s_[third : 2 * third], axis=0))
    assert cinic.load(tmp_path).checksum != dataset.checksum


def test_incomplete_tree_is_one_sentence(tmp_path: Path) -> None:
    published.cinic10(tmp_path)
    shutil.rmtree(tmp_path / "CINIC-10" / "valid" / "dog")
    with pytest.raises(AdafedError, match="lacks the class folder 'dog'"):
        cinic.load(tmp_path)


def test_corrupt_image_is_one_sentence(tmp_path: Path) -> None:
    published.cinic10(tmp_path)
    file = next((tmp_path / "CINIC-10" / "test" / "ship").iterdir())
    file.write_bytes(file.read_bytes()[:200])
    with pytest.raises(AdafedError, match="truncated or corrupt"):
        cinic.load(tmp_path)


def test_missing_set_says_where_to_get_it_and_where_to_put_it(tmp_path: Path) -> None:
    with pytest.raises(AdafedError, match=r"datashare.ed.ac.uk") as caught:
        cinic.load(tmp_path)
    assert str(tmp_path / "CINIC-10") in str(caught.value)
