"""Shakespeare from texts and from LEAF's JSON: windows of 80 characters and the one after each."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import published
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adafed.data import shakespeare
from adafed.errors import AdafedError


def test_alphabet_is_of_80_different_symbols() -> None:
    assert len(shakespeare.ALPHABET) == len(set(shakespeare.ALPHABET)) == 80


@given(st.text(alphabet=shakespeare.ALPHABET))
def test_encoding_goes_back_and_forth(text: str) -> None:
    assert shakespeare.decode(shakespeare.encode(text)) == text


@pytest.mark.parametrize("strange", ["é", "—", "\t", "#"])
def test_strange_character_is_named(strange: str) -> None:
    with pytest.raises(AdafedError, match="which LEAF's alphabet of 80 lacks"):
        shakespeare.encode(f"What? {strange}")


@pytest.mark.parametrize("write", [published.shakespeare_roles, published.shakespeare_texts])
def test_each_window_is_followed_by_its_target(tmp_path: Path, write: object) -> None:
    roles = write(tmp_path)  # type: ignore[operator]
    dataset = shakespeare.load(tmp_path)
    assert dataset.is_test is None
    assert dataset.groups is not None
    assert dataset.group_names is not None
    assert set(dataset.group_names) == set(roles)
    for group, role in enumerate(dataset.group_names):
        rows = np.flatnonzero(dataset.groups == group)
        assert len(rows) == max(len(roles[role]) - 80, 0)
        for start, row in enumerate(rows):
            window = shakespeare.decode(dataset.inputs[row]) + shakespeare.ALPHABET[dataset.targets[row]]
            assert window == roles[role][start : start + 81]


def test_leaf_json_gives_the_same_windows_in_two_parts(tmp_path: Path) -> None:
    published.shakespeare_leaf(tmp_path / "leaf")
    published.shakespeare_roles(tmp_path / "texts")
    parts, whole = shakespeare.load(tmp_path / "leaf"), shakespeare.load(tmp_path / "texts")
    assert parts.is_test is not None
    assert parts.is_test.sum() == 20
    assert parts.group_names == whole.group_names
    rows = [sorted((*map(int, x), int(y)) for x, y in zip(d.inputs, d.targets, strict=True)) for d in (parts, whole)]
    assert rows[0] == rows[1]


@pytest.mark.parametrize(
    ("x", "y"), [(["short"], ["a"]), (["a" * 80], ["ab"]), (["a" * 80], [1]), (["#" * 80], ["a"]), ([5], ["a"])]
)
def test_spoiled_json_is_one_sentence(tmp_path: Path, x: list[object], y: list[object]) -> None:
    for part in ("train", "test"):
        published.leaf(tmp_path / "shakespeare", part, {"role": (x, y)})
    with pytest.raises(AdafedError, match="'role'"):
        shakespeare.load(tmp_path)


@pytest.mark.parametrize("text", ["{", "[]", json.dumps({"role": 5})])
def test_spoiled_texts_are_one_sentence(tmp_path: Path, text: str) -> None:
    published.shakespeare_roles(tmp_path)
    (tmp_path / "shakespeare" / "by_role.json").write_text(text)
    with pytest.raises(AdafedError, match=r"by_role.json"):
        shakespeare.load(tmp_path)


def test_missing_set_says_where_to_get_it_and_where_to_put_it(tmp_path: Path) -> None:
    with pytest.raises(AdafedError, match="TalwalkarLab/leaf") as caught:
        shakespeare.load(tmp_path)
    assert str(tmp_path / "shakespeare") in str(caught.value)
