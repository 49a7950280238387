"""The local intrinsic dimension."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from adafed.client_rules.fedcorr import dimension
from adafed.client_rules.fedcorr.dimension import local_dimensions


def test_the_hand_checked_numbers(oracles: dict[str, Any]) -> None:
    given = oracles["lid"]
    points = torch.tensor(given["points"], dtype=torch.float64)[:, None]
    np.testing.assert_allclose(local_dimensions(points, given["k"]).numpy(), given["lid"], atol=1e-8)


def test_it_tells_a_line_from_a_plane() -> None:
    random = np.random.default_rng(0)
    line = torch.from_numpy(random.random((400, 1)) * np.ones((1, 3)))
    plane = torch.from_numpy(np.c_[random.random((400, 2)), np.zeros(400)])
    assert abs(float(local_dimensions(line, 20).median()) - 1) < 0.2
    assert abs(float(local_dimensions(plane, 20).median()) - 2) < 0.4


def test_points_by_the_block_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    points = torch.from_numpy(np.random.default_rng(1).random((50, 4)))
    whole = local_dimensions(points, 5)
    monkeypatch.setattr(dimension, "ROWS", 7)
    assert torch.equal(whole, local_dimensions(points, 5))


@pytest.mark.parametrize("count", [3, 5])
def test_fewer_samples_than_neighbours(count: int) -> None:
    found = local_dimensions(torch.arange(count)[:, None].double(), 20)
    assert found.shape == (count,)
    assert torch.isfinite(found).all()


@pytest.mark.parametrize("count", [1, 2])
def test_one_neighbour_tells_nothing(count: int) -> None:
    """r_1 / r_k is 1 whatever the distance: what is left is rounding, and may be millions."""
    assert local_dimensions(torch.arange(count)[:, None].double(), 20).isnan().all()


def test_points_that_coincide_have_none() -> None:
    assert local_dimensions(torch.ones(30, 2), 5).tolist() == [0.0] * 30
