"""Fair federated learning: AdaFed and other fair methods, as server rules on the Gram matrix."""

from adafed.client_rules import ClientRule
from adafed.config.sections import Config, config_from, load_config
from adafed.engines.local.simulate import simulate
from adafed.errors import AdafedError
from adafed.server.aggregate import Aggregate, Diagnostics, RuleState, aggregate
from adafed.server.optimizers import optimizer, optimizers
from adafed.server.schedules import schedule, schedules
from adafed.server.state_dicts import StateAggregate, aggregate_states
from adafed.server_rules import Answer, Facts, Rule, register, rule, rules
from adafed.server_rules.guards import Guard, Verdict
from adafed.version import __version__

__all__ = [
    "AdafedError",
    "Aggregate",
    "Answer",
    "ClientRule",
    "Config",
    "Diagnostics",
    "Facts",
    "Guard",
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
