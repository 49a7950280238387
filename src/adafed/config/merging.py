"""Configurations as written, before they are checked: settings of the command line, and one laid over another."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from typing import Any

from adafed.errors import AdafedError

DEFAULTS = {"data": "digits", "model": "mlp", "rule": "adafed"}
USUAL_NAMES = DEFAULTS | {
    "partition": "dirichlet",
    "optimizer": "sgd",
    "schedule": "constant",
}  # whose options those without a name are


def parse_settings(settings: Iterable[str]) -> dict[str, Any]:
    """`rule.gamma=5` as {"rule": {"gamma": 5}}; the value is TOML, or a bare word taken as a string."""
    content: dict[str, Any] = {}
    for setting in settings:
        key, equals, text = setting.partition("=")
        parts = key.strip().split(".")
        if not equals or not all(parts):
            raise AdafedError(f"--set {setting!r} is not of the form section.key=value, as in rule.gamma=5")
        try:
            value = tomllib.loads(f"value = {text}")["value"]
        except (ValueError, RecursionError):
            value = text.strip()
        for part in reversed(parts):
            value = {part: value}
        content = _joined(content, value)
    return content


def _joined(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Settings beside each other, in any order: whether a new name loses an entry's options is seen when they are laid
    over an experiment."""
    result = dict(one)
    for key, value in other.items():
        old = result.get(key)
        if isinstance(old, str) and isinstance(value, Mapping):
            old = {"name": old}
        if isinstance(old, Mapping) and isinstance(value, str):
            value = {"name": value}
        result[key] = _joined(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return result


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`over` on top of `base`, section by section. A section whose `name` changes loses the old entry's options."""
    result = dict(base)
    for key, value in over.items():
        old = result.get(key)
        if isinstance(old, str) and isinstance(value, Mapping):
            old = {"name": old}
        if isinstance(old, Mapping) and isinstance(value, str) and "name" in old:
            value = {"name": value}
        if isinstance(old, Mapping) and isinstance(value, Mapping):
            named_before = old.get("name", USUAL_NAMES.get(key))
            renamed = "name" in value and named_before is not None and value["name"] != named_before
            result[key] = dict(value) if renamed else merged(old, value)
        else:
            result[key] = value
    return result
