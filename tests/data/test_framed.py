"""The middle of every image, and all of it for whoever cuts from it."""

from __future__ import annotations

import numpy as np
import pytest

from adafed.data.framed import FramedFederation
from adafed.data.sources import open_federation
from adafed.errors import AdafedError

SPLIT = {"validation": 0.1, "test": 0.2}
IMAGES = {"name": "digits", "flat": False}
WHO = {"name": "iid", "clients": 3}


def test_the_model_sees_the_middle_of_every_part() -> None:
    whole = open_federation(IMAGES, WHO, SPLIT, seed=1)
    framed = FramedFederation(whole, 4)
    assert whole.input_shape == (1, 8, 8)
    assert framed.input_shape == (1, 4, 4)
    assert (framed.ids, framed.classes, framed.name) == (whole.ids, whole.classes, whole.name)
    np.testing.assert_array_equal(framed.train_sizes, whole.train_sizes)
    for part in ("train", "validation", "test"):
        before, after = getattr(whole.client(2), part), getattr(framed.client(2), part)
        np.testing.assert_array_equal(after.inputs, before.inputs[:, :, 2:6, 2:6])
        np.testing.assert_array_equal(after.targets, before.targets)


def test_another_frame_is_other_data() -> None:
    whole = open_federation(IMAGES, WHO, SPLIT, seed=1)
    assert len({whole.checksum, FramedFederation(whole, 4).checksum, FramedFederation(whole, 6).checksum}) == 3


@pytest.mark.parametrize(
    ("data", "told"),
    [(IMAGES, r"^augment\.crop = 9: inputs have the shape \(1, 8, 8\), so it must be at most 8$"),
     ({"name": "digits"}, r"^augment\.crop = 9: inputs have the shape \(64,\), so it must be left out$")],
)  # fmt: skip
def test_a_frame_that_does_not_fit_is_told(data: dict[str, object], told: str) -> None:
    with pytest.raises(AdafedError, match=told):
        FramedFederation(open_federation(data, WHO, SPLIT, seed=1), 9)
