"""The digits that come with scikit-learn."""

from __future__ import annotations

import numpy as np

from adafed.data.embedded import digits
from adafed.data.federation import federate


def test_digits() -> None:
    flat, images = digits(), digits(flat=False)
    assert flat.inputs.shape == (1797, 64)
    assert images.inputs.shape == (1797, 1, 8, 8)
    assert np.array_equal(flat.inputs, images.inputs.reshape(1797, 64))
    assert flat.inputs.dtype == np.float32
    assert (flat.inputs.min(), flat.inputs.max()) == (0.0, 1.0)
    assert (flat.classes, len(flat), np.unique(flat.targets).tolist()) == (10, 1797, list(range(10)))
    assert flat.checksum == digits().checksum != images.checksum


def test_digits_federate() -> None:
    federation = federate(digits(), "dirichlet", {"clients": 10, "beta": 0.3}, seed=0)
    assert len(federation.ids) == 10
    assert federation.train_sizes.min() >= 8
