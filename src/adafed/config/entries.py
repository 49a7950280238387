"""An entry of a registry in a configuration: its `name` and its options side by side. The entry itself checks them."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict

from adafed.attacks import Lie
from adafed.client_rules import ClientRule
from adafed.registry import options
from adafed.server.optimizers import ServerOptimizer
from adafed.server.schedules import Schedule
from adafed.server_rules import Rule
from adafed.server_rules.guards import Guard


class NamedEntry(BaseModel):
    """`name` and the options of the entry it names."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True, ser_json_inf_nan="constants")
    name: str

    @property
    def options(self) -> dict[str, Any]:
        return dict(self.model_extra or {})


def named(name: str, **options: Any) -> NamedEntry:
    return NamedEntry.model_validate({"name": name, **options})


def _text_as_name(value: Any) -> Any:
    """`rule = "fedavg"` is short for a section with that name alone."""
    return {"name": value} if isinstance(value, str) else value


Entry = Annotated[NamedEntry, BeforeValidator(_text_as_name)]


def with_options(entry: Rule | ServerOptimizer | Schedule | ClientRule | Guard | Lie) -> dict[str, Any]:
    """As made; None is what is left out, and TOML has no word for it."""
    return {"name": entry.name} | {option: value for option, value in options(entry).items() if value is not None}
