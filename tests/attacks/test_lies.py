"""What each lie does to what a client sends, and who lies."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from adafed import AdafedError
from adafed.attacks import LIES, Sent, liars, lies_from


def sent(count: int = 2) -> list[Sent]:
    rows = torch.arange(1.0, 1.0 + 3 * count).reshape(count, 3)
    return [Sent(row, 10, {"before": 2.0, "running": 1.0}, 0.5) for row in rows]


def told(name: str, count: int = 2, **options: Any) -> list[Sent]:
    found = sent(count)
    honest = [torch.full((3,), 7.0), torch.full((3,), 8.0)]
    LIES.make(name, **options).tell(found, honest, np.random.default_rng(0))
    assert all(torch.equal(row, torch.full((3,), value)) for row, value in zip(honest, (7.0, 8.0), strict=True))
    return found


def test_a_lie_about_the_loss_is_about_every_kind_of_it() -> None:
    assert [one.losses for one in told("loss", factor=3.0)] == [{"before": 6.0, "running": 3.0}] * 2


def test_lies_about_counts_and_accuracies() -> None:
    assert [one.samples for one in told("samples", factor=2.5)] == [25, 25]
    assert [one.samples for one in told("samples", factor=0.0)] == [1, 1]
    assert [one.accuracy for one in told("accuracy", value=0.1)] == [0.1, 0.1]


def test_updates_are_scaled_where_they_lie() -> None:
    assert told("scale", factor=-2.0)[1].update.tolist() == [-8.0, -10.0, -12.0]
    assert told("zero")[0].update.tolist() == [0.0] * 3


def test_a_random_update_is_as_long_as_it_is_told() -> None:
    one, other = told("random", times=3.0)
    for found, before in zip((one, other), sent(), strict=True):
        assert float(found.update.norm()) == pytest.approx(3.0 * float(before.update.norm()), rel=1e-5)
    assert not torch.equal(one.update, other.update)
    assert torch.equal(told("random")[0].update, told("random")[0].update)


def test_a_broken_update_has_one_nan() -> None:
    assert [int(one.update.isnan().sum()) for one in told("nan")] == [1, 1]


def test_copies_are_of_one_honest_client_for_all() -> None:
    assert all(one.update.tolist() == [7.0] * 3 for one in told("copy"))
    alone = sent()
    LIES.make("copy").tell(alone, [], np.random.default_rng(0))
    assert torch.equal(alone[0].update, sent()[0].update)


def test_colluders_send_the_first_ones_update() -> None:
    found = told("same", 3)
    assert all(torch.equal(one.update, sent()[0].update) for one in found)


def test_who_lies_is_drawn_once_and_at_least_one() -> None:
    ids = [str(k) for k in range(10)]
    assert liars(ids, None, 0.3, 5) == liars(ids, None, 0.3, 5)
    assert len(liars(ids, None, 0.3, 5)) == 3
    assert len(liars(ids, None, 0.01, 5)) == 1
    assert len({liars(ids, None, 0.1, seed) for seed in range(20)}) > 3
    assert liars(ids, ["3", "7"], 0.1, 0) == {3, 7}
    with pytest.raises(AdafedError, match=r"^attack\.clients has 'x'; the clients are 0, 1, 2, 3, 4, 5, 6, 7, 8, 9$"):
        liars(ids, ["x"], 0.1, 0)


def test_lies_by_name() -> None:
    assert lies_from([("scale", {"factor": 2}), ("same", {})]) == (LIES.make("scale", factor=2.0), LIES.make("same"))
    with pytest.raises(AdafedError, match=r"^attack\.use = 'lie' is unknown; there are accuracy, copy, "):
        lies_from([("lie", {})])
    with pytest.raises(AdafedError, match=r"scale\.factor is inf; it must be a number between"):
        lies_from([("scale", {"factor": float("inf")})])


def test_who_lies_does_not_depend_on_the_order_in_which_clients_are_named() -> None:
    ids = ["t-shirt", "pullover", "shirt", "coat", "10", "9"]
    for seed in range(5):
        drawn = {ids[k] for k in liars(ids, None, 0.5, seed)}
        turned = sorted(ids)
        assert {turned[k] for k in liars(turned, None, 0.5, seed)} == drawn


def test_a_share_below_all_leaves_somebody_honest() -> None:
    ids = [str(k) for k in range(5)]
    assert len(liars(ids, None, 0.99, 1)) == 4
    assert len(liars(ids, None, 1.0, 1)) == 5
    assert len(liars(ids, None, 0.01, 1)) == len(liars(["a"], None, 0.5, 1)) == 1
