"""Parts of a data set keep what belongs together, and every mistake is one sentence."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from adafed.data.base import Dataset, Normalisation
from adafed.data.federation import federate
from adafed.data.selection import selected
from adafed.data.sources import open_federation
from adafed.errors import AdafedError

SPLIT = {"mode": "within", "validation": 0.0, "test": 0.2, "stratified": False, "pool": "all", "limit": None}


def dataset(groups: bool = False) -> Dataset:
    """Sample i has the pixel value i, so that rows can be told apart."""
    inputs = np.arange(240, dtype=np.uint8)[:, None, None, None] * np.ones((1, 1, 2, 2), np.uint8)
    targets = np.arange(240) % 6
    return Dataset(
        "made",
        inputs,
        targets.astype(np.int64),
        6,
        Normalisation(),
        "0",
        groups=np.arange(240) // 60 if groups else None,
        is_test=np.arange(240) % 10 == 9,
    )


def test_nothing_asked_changes_nothing() -> None:
    whole = dataset()
    assert selected(whole, {}, seed=0) is whole


def test_classes_are_numbered_in_the_order_they_are_named() -> None:
    part = selected(dataset(), {"keep_classes": [5, 0]}, seed=0)
    assert part.classes == 2
    assert set(part.targets) == {0, 1}
    pixels = part.inputs[:, 0, 0, 0].astype(int)
    assert (pixels[part.targets == 0] % 6 == 5).all()
    assert (pixels[part.targets == 1] % 6 == 0).all()


def test_named_classes_can_own_their_samples() -> None:
    data = {"keep_classes": {"shirt": 3, "pullover": 1}, "owner": "class"}
    part = selected(dataset(), data, seed=0)
    federation = federate(part, "natural", {}, seed=0, test=0.2, validation=0.0)
    assert federation.ids == ("shirt", "pullover")
    for client in range(2):
        assert set(federation.client(client).train.targets) == {client}


@pytest.mark.parametrize("groups", [False, True])
def test_a_share_keeps_every_kind_in_proportion(groups: bool) -> None:
    whole = dataset(groups)
    part = selected(whole, {"share": 0.25}, seed=3)
    before, after = (one.groups if groups else one.targets for one in (whole, part))
    assert before is not None
    assert after is not None
    assert np.abs(np.bincount(after) - 0.25 * np.bincount(before)).max() <= 1
    assert part.is_test is not None
    assert 0.05 < part.is_test.mean() < 0.2
    again = selected(whole, {"share": 0.25}, seed=3)
    other = selected(whole, {"share": 0.25}, seed=4)
    np.testing.assert_array_equal(part.inputs, again.inputs)
    assert not np.array_equal(part.inputs, other.inputs)


def test_standardised_pixels_have_mean_zero_and_deviation_one_over_the_training_part() -> None:
    part = selected(dataset(), {"standardise": "pixel"}, seed=0)
    assert part.is_test is not None
    trained = part.inputs[~part.is_test]
    np.testing.assert_allclose(trained.mean(axis=0), 0, atol=1e-5)
    np.testing.assert_allclose(trained.std(axis=0), 1, atol=0.01)


def test_standardised_channels_have_mean_zero_and_deviation_one_over_the_training_part() -> None:
    whole = dataset()
    grey = np.full_like(whole.inputs, 7)  # a channel that never changes becomes 0
    part = selected(
        replace(whole, inputs=np.concatenate([whole.inputs, grey], axis=1)), {"standardise": "channel"}, seed=0
    )
    assert part.inputs.dtype == np.uint8
    assert part.is_test is not None
    trained = part.normalisation(part.inputs[~part.is_test]).numpy()
    np.testing.assert_allclose(trained.mean(axis=(0, 2, 3)), 0, atol=1e-5)
    np.testing.assert_allclose(trained.std(axis=(0, 2, 3)), [1, 0], atol=1e-5)


def test_only_images_have_channels() -> None:
    with pytest.raises(AdafedError, match="made has none"):
        selected(replace(dataset(), inputs=np.zeros((240, 5), np.float32)), {"standardise": "channel"}, seed=0)


def test_the_checksum_tells_selections_apart() -> None:
    whole = dataset()
    ways = [{"standardise": how} for how in ("pixel", "channel")]
    choices = ({"keep_classes": [0]}, {"keep_classes": [1]}, {"share": 0.5}, *ways)
    sums = {selected(whole, choice, seed=0).checksum for choice in choices}
    assert len(sums) == 5
    assert whole.checksum not in sums


def test_a_limit_caps_every_client_before_the_split() -> None:
    federation = federate(
        dataset(), "dirichlet", {"clients": 4, "beta": 0.5}, seed=1, test=0.2, validation=0.0, limit=20
    )
    sizes = [len(part.train) + len(part.test) for part in federation.parts]
    assert max(sizes) == 20


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"keep_classes": []}, "data.keep_classes"),
        ({"keep_classes": [1, 1]}, "different classes"),
        ({"keep_classes": [6]}, "made has 0 to 5"),
        ({"keep_classes": "a"}, "data.keep_classes"),
        ({"owner": "writer"}, "data.owner"),
        ({"share": 0.0}, "data.share"),
        ({"share": True}, "data.share"),
        ({"standardise": "image"}, "data.standardise"),
    ],
)
def test_mistakes_are_told(options: dict[str, object], told: str) -> None:
    with pytest.raises(AdafedError, match=told):
        selected(dataset(), options, seed=0)


def test_given_clients_take_no_selection() -> None:
    with pytest.raises(AdafedError, match=r"data\.share is unknown"):
        open_federation({"name": "synthetic", "share": 0.5}, None, SPLIT, seed=0)


def test_images_are_resized_and_colours_kept() -> None:
    whole = dataset()
    larger = selected(whole, {"resize": 5}, seed=0)
    assert larger.inputs.shape == (240, 1, 5, 5)
    assert larger.inputs.dtype == np.uint8
    assert (larger.inputs == whole.inputs[:, :, :1, :1]).all()  # every image is of one colour
    assert larger.checksum != whole.checksum
    ramp = replace(whole, inputs=np.tile(np.array([0, 200], np.uint8), (240, 1, 2, 1)))
    columns = selected(ramp, {"resize": 4}, seed=0).inputs[7, 0, 0].tolist()
    assert columns == [0, 50, 150, 200]  # linear between the middles of the two


@pytest.mark.parametrize("side", [0, True, "32", 32.0])
def test_a_side_that_is_none_is_told(side: object) -> None:
    with pytest.raises(AdafedError, match=r"^data\.resize = .*; it must be a whole number from 1 to 4096, as in 32$"):
        selected(dataset(), {"resize": side}, seed=0)


def test_only_images_are_resized() -> None:
    letters = replace(dataset(), inputs=np.zeros((240, 80), np.int64))
    with pytest.raises(AdafedError, match=r"^data\.resize = 32 is for images; made has none, so leave it out$"):
        selected(letters, {"resize": 32}, seed=0)
