"""Updates kept for later: what each way of storing loses, and that any piece reads as the whole does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adafed.algebra.rows import Rows
from adafed.algebra.stored import NEIGHBOURS, STORAGES, Storage, StoredRow, bytes_needed, encoded

Array = np.ndarray[Any, Any]


def stored(vector: Array, storage: Storage) -> StoredRow:
    raw = np.empty(bytes_needed(len(vector), storage), np.uint8)
    encoded(vector, storage, raw)
    return StoredRow(raw, len(vector), storage)


def numbers(length: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(size=length).astype(np.float32)


@given(st.integers(1, 2000), st.integers(0, 9))
@settings(max_examples=40, deadline=None)
def test_what_is_lost(length: int, seed: int) -> None:
    vector = numbers(length, seed)
    assert np.array_equal(stored(vector, "float32").tensor().numpy(), vector)
    rounded = stored(vector, "bfloat16").tensor().numpy()
    assert (np.abs(rounded - vector) <= np.abs(vector) / 256).all()
    levels = stored(vector, "int8").tensor().numpy()
    for first in range(0, length, NEIGHBOURS):
        piece = slice(first, first + NEIGHBOURS)
        assert (np.abs(levels[piece] - vector[piece]) <= np.abs(vector[piece]).max() / 254 * 1.001).all()


@pytest.mark.parametrize("storage", STORAGES)
def test_any_piece_reads_as_the_whole(storage: Storage) -> None:
    row = stored(numbers(1500), storage)
    whole = row.tensor().numpy()
    for start, stop in [(0, 1500), (0, 256), (256, 512), (100, 900), (1499, 1500), (1024, 1500)]:
        for dtype in (np.float32, np.float64):
            piece = np.empty(stop - start, dtype)
            row.read(start, piece)
            assert np.array_equal(piece, whole[start:stop].astype(dtype))


@pytest.mark.parametrize("storage", STORAGES)
def test_zeros_and_the_smallest_numbers(storage: Storage) -> None:
    assert not stored(np.zeros(300, np.float32), storage).tensor().any()
    tiny = np.full(300, 1e-38, np.float32)
    assert np.isfinite(stored(tiny, storage).tensor().numpy()).all()


def test_rows_of_both_kinds() -> None:
    fresh = numbers(3000).reshape(2, 1500)
    kept = [stored(numbers(1500, seed), "float32") for seed in (1, 2)]
    rows = Rows(fresh).with_stored(kept)
    assert rows.count == 4
    expected = np.vstack([fresh, numbers(1500, 1), numbers(1500, 2)])
    assert np.array_equal(rows.block(0, 1500).numpy(), expected)
    assert np.array_equal(Rows.of_stored(kept).block(10, 20).numpy(), expected[2:, 10:20])
