"""FEMNIST and LEAF's JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import published
import pytest

from adafed.data import femnist
from adafed.errors import AdafedError


@pytest.mark.parametrize("below", ["", "data"])
def test_round_trip(tmp_path: Path, below: str) -> None:
    made = published.femnist(tmp_path)
    if below:
        (tmp_path / "femnist").rename(tmp_path / "moved")
        (tmp_path / "femnist").mkdir()
        (tmp_path / "moved").rename(tmp_path / "femnist" / below)
    dataset = femnist.load(tmp_path)
    np.testing.assert_array_equal(dataset.inputs, made.inputs)
    np.testing.assert_array_equal(dataset.targets, made.targets)
    np.testing.assert_array_equal(dataset.groups, made.groups)
    np.testing.assert_array_equal(dataset.is_test, made.is_test)
    assert dataset.group_names == made.group_names


def test_four_decimals_are_enough_for_every_byte(tmp_path: Path) -> None:
    grey = np.arange(784) % 256
    for part in ("train", "test"):
        published.leaf(tmp_path / "femnist", part, {"w": ([np.round(grey / 255, 4).tolist()], [0])})
    np.testing.assert_array_equal(femnist.load(tmp_path).inputs[0].reshape(-1), grey)


def _edit(change: Callable[[dict[str, Any]], object]) -> Callable[[str], str]:
    def spoil(text: str) -> str:
        document = json.loads(text)
        change(document)
        return json.dumps(document)

    return spoil


def _user(document: dict[str, Any]) -> dict[str, Any]:
    user: dict[str, Any] = document["user_data"][document["users"][0]]
    return user


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda text: text[:-10], "truncated or corrupt"),
        (lambda text: "", "truncated or corrupt"),
        (lambda text: "[1, 2]", "not LEAF's JSON"),
        (_edit(lambda document: document.pop("num_samples")), "not LEAF's JSON"),
        (_edit(lambda document: document["num_samples"].pop()), "not LEAF's JSON"),
        (_edit(lambda document: document["user_data"].pop(document["users"][0])), "no lists x and y"),
        (_edit(lambda document: _user(document)["y"].pop()), "num_samples says"),
        (_edit(lambda document: _user(document)["x"][0].pop()), "784"),
        (_edit(lambda document: _user(document)["x"][0].__setitem__(0, 255.0)), r"leave \[0, 1\]"),
        (_edit(lambda document: _user(document)["x"][0].__setitem__(0, "a")), "784 numbers"),
        (_edit(lambda document: _user(document)["y"].__setitem__(0, 62)), "label 62"),
        (_edit(lambda document: _user(document)["y"].__setitem__(0, "a")), "not integers"),
    ],
)
def test_spoiled_file_is_one_sentence(tmp_path: Path, spoil: Callable[[str], str], told: str) -> None:
    published.femnist(tmp_path)
    file = min((tmp_path / "femnist" / "test").iterdir())
    file.write_text(spoil(file.read_text()))
    with pytest.raises(AdafedError, match=told) as caught:
        femnist.load(tmp_path)
    assert "\n" not in str(caught.value)


def test_missing_set_says_where_to_get_it_and_where_to_put_it(tmp_path: Path) -> None:
    with pytest.raises(AdafedError, match="TalwalkarLab/leaf") as caught:
        femnist.load(tmp_path)
    assert str(tmp_path / "femnist") in str(caught.value)
