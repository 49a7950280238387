"""The small convolutional network of federated learning: two 5 x 5 convolutions and two dense layers."""

from __future__ import annotations

from torch import nn

from adafed.errors import AdafedError
from adafed.models.base import image, register, whole, wholes


@register("cnn")
def cnn(
    input_shape: tuple[int, ...],
    classes: int,
    *,
    channels: tuple[int, int] = (32, 64),
    dense: int = 512,
    dropout: float | tuple[float, float] = 0.0,
) -> nn.Module:
    """McMahan et al.'s network; each convolution keeps the size and is followed by 2 x 2 max-pooling.

    `dropout` is the share of units dropped before and after the first dense layer, or one number for both. The
    FEMNIST network of Ditto has channels (16, 32), dense 128 and dropout (0.25, 0.5).
    """
    depth, height, width = image("cnn", input_shape)
    if min(height, width) < 4:
        raise AdafedError(f"model.name = 'cnn' takes images of at least 4 x 4 pixels, not {height} x {width}.")
    first, second = wholes("channels", channels, length=2)
    units = whole("dense", dense)
    before, after = _dropout(dropout)
    return nn.Sequential(
        nn.Conv2d(depth, first, kernel_size=5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(first, second, kernel_size=5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(before),
        nn.Linear(second * (height // 4) * (width // 4), units),
        nn.ReLU(),
        nn.Dropout(after),
        nn.Linear(units, classes),
    )


def _dropout(value: object) -> tuple[float, float]:
    pair = tuple(value) if isinstance(value, list | tuple) else (value, value)
    if len(pair) != 2 or any(isinstance(p, bool) or not isinstance(p, int | float) or not 0 <= p < 1 for p in pair):
        raise AdafedError(f"model.dropout = {value!r} must be one or two shares of at least 0 and below 1.")
    return float(pair[0]), float(pair[1])
