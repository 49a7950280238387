"""The models by name: `build("cnn", (3, 32, 32), 10)`, or any nn.Module of the user's as `module:attribute`."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from torch import nn

from adafed.errors import AdafedError
from adafed.registry import Registry

MODELS: Registry[Callable[..., nn.Module]] = Registry("model", "model", given=("input_shape", "classes"))
MOST_LAYERS = 1000
register = MODELS.register
names = MODELS.names


def options(name: str) -> dict[str, Any]:
    """The options of a model, with their defaults."""
    return {key: option.default for key, option in MODELS.options(name).items()}


def build(name: str, input_shape: tuple[int, ...], classes: int, /, **chosen: Any) -> nn.Module:
    """A fresh model for inputs of that shape. Its weights are drawn from torch's generator: seed it before.

    A class or function of the user's is called with the options, and with input_shape and classes if it takes them.
    A ready module is copied, with the weights it was made with.
    """
    entry = MODELS.entry(name)
    if isinstance(entry, nn.Module):
        if chosen:
            raise AdafedError(f"model.{next(iter(chosen))} is unknown; model.name = {name!r} is a ready module")
        return copy.deepcopy(entry)
    model = MODELS.call(name, chosen, input_shape=tuple(input_shape), classes=whole("classes", classes))
    if not isinstance(model, nn.Module):
        raise AdafedError(f"model.name = {name!r} made {type(model).__name__}; it must make an nn.Module")
    return model


# What builders ask of their arguments.


def whole(option: str, value: object, least: int = 1) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise AdafedError(f"model.{option} = {value!r} must be a whole number of at least {least}.")
    return value


def wholes(option: str, values: object, length: int | None = None) -> tuple[int, ...]:
    wanted = "whole numbers of at least 1" if length is None else f"{length} whole numbers of at least 1"
    if not isinstance(values, list | tuple) or (length is not None and len(values) != length):
        raise AdafedError(f"model.{option} = {values!r} must be a list of {wanted}.")
    if any(isinstance(value, bool) or not isinstance(value, int) or value < 1 for value in values):
        raise AdafedError(f"model.{option} = {values!r} must be a list of {wanted}.")
    if len(values) > MOST_LAYERS:
        raise AdafedError(f"model.{option} has {len(values)} numbers; it must have at most {MOST_LAYERS}.")
    return tuple(values)


def choice(option: str, value: object, choices: tuple[str, ...]) -> str:
    if not isinstance(value, str) or value not in choices:
        raise AdafedError(f"model.{option} = {value!r} is unknown: choose one of {', '.join(choices)}.")
    return value


def image(name: str, input_shape: tuple[int, ...]) -> tuple[int, int, int]:
    if len(input_shape) != 3:
        raise AdafedError(
            f"model.name = {name!r} takes images of shape (channels, height, width), but the data have {input_shape}."
        )
    channels, height, width = input_shape
    return channels, height, width
