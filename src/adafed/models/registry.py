"""The models by name: `build("cnn", (3, 32, 32), 10)`, or any nn.Module of the user's as `module:attribute`."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from torch import nn

from adafed.data.imported import attribute
from adafed.errors import AdafedError

Builder = TypeVar("Builder", bound=Callable[..., nn.Module])
BUILDERS: dict[str, Callable[..., nn.Module]] = {}


def register(name: str) -> Callable[[Builder], Builder]:
    """Add a builder: called with input_shape and classes, its keyword-only parameters are the model's options."""

    def add(builder: Builder) -> Builder:
        BUILDERS[name] = builder
        return builder

    return add


def names() -> tuple[str, ...]:
    return tuple(sorted(BUILDERS))


def options(name: str) -> dict[str, Any]:
    """The options of a model, with their defaults."""
    if name not in BUILDERS:
        raise AdafedError(
            f"model.name = {name!r} is unknown: choose one of {', '.join(names())}, "
            "or an nn.Module of your own as 'module:attribute'."
        )
    parameters = inspect.signature(BUILDERS[name]).parameters.values()
    return {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}


def build(name: str, input_shape: tuple[int, ...], classes: int, /, **chosen: Any) -> nn.Module:
    """A fresh model for inputs of that shape. Its weights are drawn from torch's generator: seed it before."""
    if ":" in name:
        return _imported(name, tuple(input_shape), classes, chosen)
    known = options(name)
    for option in chosen:
        if option not in known:
            raise AdafedError(f"model.{option} is unknown: {name!r} has {_listed(tuple(known))}.")
    return BUILDERS[name](tuple(input_shape), whole("classes", classes), **chosen)


def _imported(name: str, input_shape: tuple[int, ...], classes: int, chosen: dict[str, Any]) -> nn.Module:
    """A class or function is called with the options, and with input_shape and classes if it takes them.

    A ready module is copied, with the weights it was made with.
    """
    found = attribute(name, "model.name")
    if isinstance(found, nn.Module):
        if chosen:
            raise AdafedError(f"model.{next(iter(chosen))} is unknown: {name!r} is a ready module, without options.")
        return copy.deepcopy(found)
    if not callable(found):
        raise AdafedError(f"model.name = {name!r} is {type(found).__name__}, neither nn.Module nor a function.")
    parameters = inspect.signature(found).parameters.values()
    known = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    if not any(p.kind is p.VAR_KEYWORD for p in parameters):
        for option in chosen:
            if option not in known:
                raise AdafedError(f"model.{option} is unknown: {name!r} has {_listed(tuple(known))}.")
    given = {"input_shape": input_shape, "classes": classes}
    for option in chosen:
        if option in given:
            raise AdafedError(f"model.{option} = {chosen[option]!r} comes from the data; leave it out.")
    arguments = {key: value for key, value in given.items() if key in known} | chosen
    for p in parameters:
        if p.name in known and p.default is p.empty and p.name not in arguments:
            raise AdafedError(f"model.{p.name} is missing: {name!r} needs it.")
    model = found(**arguments)
    if not isinstance(model, nn.Module):
        raise AdafedError(f"model.name = {name!r} made {type(model).__name__}, not an nn.Module.")
    return model


def _listed(known: tuple[str, ...]) -> str:
    return f"the options {', '.join(known)}" if known else "no options"


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
