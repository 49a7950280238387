"""Data that come with an installed library, so that a first run needs no download."""

from __future__ import annotations

import numpy as np

from adafed.data.base import Dataset, Normalisation, sha256


def digits(flat: bool = True) -> Dataset:
    """scikit-learn's 1,797 handwritten digits of 8 x 8 pixels, scaled to [0, 1], as float32.

    Flat gives features of shape (64,), otherwise images of shape (1, 8, 8).
    """
    from sklearn.datasets import load_digits  # slow to import, and few runs need it

    pixels, labels = load_digits(return_X_y=True)
    inputs = (pixels / 16.0).astype(np.float32)
    if not flat:
        inputs = inputs.reshape(-1, 1, 8, 8)
    targets = labels.astype(np.int64)
    return Dataset("digits", inputs, targets, 10, Normalisation(), sha256(inputs, targets))
