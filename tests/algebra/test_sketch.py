"""Count-sketches: linear, right on average, and as far off as they say."""

import numpy as np
import torch

from adafed.algebra.rows import Rows
from adafed.algebra.sketch import sketched


def test_a_sketch_is_linear() -> None:
    rows = np.random.default_rng(0).normal(size=(3, 1000))
    mixed = rows[0] - 2.0 * rows[1] + 0.5 * rows[2]
    one, other = sketched(Rows(rows), 64), sketched(Rows(mixed[None]), 64)
    np.testing.assert_allclose(np.array([1.0, -2.0, 0.5]) @ one, other[0], rtol=0, atol=1e-4)


def test_inner_products_are_off_by_about_the_root_of_two_over_m() -> None:
    rows = np.random.default_rng(1).normal(size=(60, 20_000)) + 0.5
    exact, lengths = rows @ rows.T, np.linalg.norm(rows, axis=1)
    spread = []
    for size in (256, 4096):
        small = sketched(Rows(rows), size).astype(np.float64)
        errors = (small @ small.T - exact) / np.outer(lengths, lengths)
        spread.append(float(np.sqrt(np.mean(errors**2))))
        assert spread[-1] < np.sqrt(2.0 / size)
    assert 2.0 < spread[0] / spread[1] < 8.0  # four times as exact with sixteen times the numbers, give or take chance


def test_every_kind_of_row_has_the_same_sketch() -> None:
    rows = torch.from_numpy(np.random.default_rng(2).normal(size=(2, 300))).float()
    expected = sketched(Rows(rows), 32)
    assert np.array_equal(sketched(Rows(list(rows)), 32), expected)
    assert np.array_equal(sketched(Rows(rows.double()), 32), expected)
