"""Fair federated learning: AdaFed and other fair methods, as server rules on the Gram matrix."""

from __future__ import annotations

from importlib import import_module

from adafed.version import __version__

TYPE_CHECKING = False  # as in `typing`, whose import takes longer than all that is here
if TYPE_CHECKING:
    from typing import Any

    from adafed.client_rules import ClientRule
    from adafed.config.configuration import Config, config_from
    from adafed.config.loading import load_config
    from adafed.engines.local.simulate import simulate
    from adafed.errors import AdafedError, NoClientLeft
    from adafed.server.aggregate import Aggregate, Diagnostics, RuleState, aggregate
    from adafed.server.optimizers import optimizer, optimizers
    from adafed.server.schedules import schedule, schedules
    from adafed.server.state_dicts import StateAggregate, aggregate_states
    from adafed.server_rules import Answer, Facts, Rule, register, rule, rules
    from adafed.server_rules.guards import Guard, Verdict

__all__ = [
    "AdafedError",
    "Aggregate",
    "Answer",
    "ClientRule",
    "Config",
    "Diagnostics",
    "Facts",
    "Guard",
    "NoClientLeft",
    "Rule",
    "RuleState",
    "StateAggregate",
    "Verdict",
    "__version__",
    "aggregate",
    "aggregate_states",
    "config_from",
    "load_config",
    "optimizer",
    "optimizers",
    "register",
    "rule",
    "rules",
    "schedule",
    "schedules",
    "simulate",
]

_PLACES = {
    "adafed.client_rules": ("ClientRule",),
    "adafed.config.configuration": ("Config", "config_from"),
    "adafed.config.loading": ("load_config",),
    "adafed.engines.local.simulate": ("simulate",),
    "adafed.errors": ("AdafedError", "NoClientLeft"),
    "adafed.server.aggregate": ("Aggregate", "Diagnostics", "RuleState", "aggregate"),
    "adafed.server.optimizers": ("optimizer", "optimizers"),
    "adafed.server.schedules": ("schedule", "schedules"),
    "adafed.server.state_dicts": ("StateAggregate", "aggregate_states"),
    "adafed.server_rules": ("Answer", "Facts", "Rule", "register", "rule", "rules"),
    "adafed.server_rules.guards": ("Guard", "Verdict"),
}
_PLACE_OF = {name: place for place, names in _PLACES.items() for name in names}


def __getattr__(name: str) -> Any:
    """A public name is imported when it is first used: a program that only asks for help need not wait for torch."""
    if name not in _PLACE_OF:
        raise AttributeError(f"module 'adafed' has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(_PLACE_OF[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
