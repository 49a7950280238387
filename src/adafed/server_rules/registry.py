"""The registry of rules, and the two public calls on it: `rules()` and `rule(name, ...)`."""

from __future__ import annotations

from typing import Any

from adafed.errors import AdafedError
from adafed.registry import Registry
from adafed.server_rules.base import Rule

RULES: Registry[Rule] = Registry("rule")
register = RULES.register


def rules() -> tuple[str, ...]:
    """The names of all registered rules."""
    return RULES.names()


def rule(name: str, *, preset: str | None = None, **options: Any) -> Rule:
    """The rule called `name`, with its options; `preset` picks a named set of options, which `options` may override."""
    if preset is not None:
        presets = RULES.entry(name).presets
        if preset not in presets:
            known = ", ".join(map(repr, presets)) or "none"
            raise AdafedError(f"{name}: preset is {preset!r}; this rule has {known}")
        options = presets[preset] | options
    return RULES.make(name, **options)
