"""Fashion-MNIST from idx files, gzipped or plain."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import published
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adafed.data import fashion
from adafed.errors import AdafedError


@pytest.mark.parametrize("zipped", [True, False])
def test_round_trip(tmp_path: Path, zipped: bool) -> None:
    made = published.fashion(tmp_path, zipped=zipped)
    dataset = fashion.load(tmp_path, verify=False)
    np.testing.assert_array_equal(dataset.inputs, made.inputs)
    np.testing.assert_array_equal(dataset.targets, made.targets)
    np.testing.assert_array_equal(dataset.is_test, made.is_test)


def test_files_other_than_the_published_ones_are_refused_unless_meant(tmp_path: Path) -> None:
    published.fashion(tmp_path)
    with pytest.raises(AdafedError, match="not the published file"):
        fashion.load(tmp_path)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda raw: gzip.compress(gzip.decompress(raw)[:-1]),
        lambda raw: gzip.compress(gzip.decompress(raw)[:9]),
        lambda raw: raw[:-12],
        lambda raw: raw[:40] + bytes(byte ^ 255 for byte in raw[40:60]) + raw[60:],
        lambda raw: b"",
        lambda raw: b"<html>not found</html>",
        lambda raw: gzip.compress(published.idx(np.zeros((10, 28), np.uint8))),
        lambda raw: gzip.compress(published.idx(np.zeros((10, 32, 32), np.uint8))),
        lambda raw: gzip.compress(published.idx(np.zeros((9, 28, 28), np.uint8))),
    ],
)
def test_spoiled_images_are_one_sentence(tmp_path: Path, spoil: object) -> None:
    published.fashion(tmp_path)
    file = tmp_path / "FashionMNIST" / "raw" / "t10k-images-idx3-ubyte.gz"
    file.write_bytes(spoil(file.read_bytes()))  # type: ignore[operator]
    with pytest.raises(AdafedError, match=r"t10k-images-idx3-ubyte.gz") as caught:
        fashion.load(tmp_path, verify=False)
    assert "\n" not in str(caught.value)


@given(st.lists(st.integers(0, 5), min_size=1, max_size=4))
def test_idx_of_any_shape(shape: list[int]) -> None:
    import tempfile

    array = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "some-idx")
        path.write_bytes(published.idx(array))
        np.testing.assert_array_equal(fashion.read_idx(path, len(shape)), array)


def test_missing_set_says_where_to_get_it_and_where_to_put_it(tmp_path: Path) -> None:
    with pytest.raises(AdafedError, match="zalandoresearch") as caught:
        fashion.load(tmp_path)
    assert str(tmp_path / "FashionMNIST" / "raw") in str(caught.value)
