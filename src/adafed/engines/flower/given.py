"""What `FairStrategy` is given, checked when it is made: a mistake is told before any client has trained."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from difflib import get_close_matches
from numbers import Integral, Real
from typing import Any, TypeVar, cast

from adafed.errors import AdafedError, quoted
from adafed.server.optimizers import ServerOptimizer, optimizer
from adafed.server.schedules import Schedule, schedule
from adafed.server_rules import Rule, rule

Part = TypeVar("Part")
LEFT = "leave it out: a run begins with min_available_nodes, and rounds go on with those that are left"
INSTEAD = {  # arguments of Flower's own strategies, and what does their work here
    "fraction_evaluate": "leave it out: all clients are evaluated, and evaluate_every says when (-1: never)",
    "min_train_nodes": LEFT,
    "min_evaluate_nodes": LEFT,
    "weighted_by_key": "leave it out: the rule makes the weights, and the metric num-examples tells it the samples",
    "arrayrecord_key": "leave it out: the record of the model is called arrays",
    "configrecord_key": "leave it out: the record of the server's settings is called config",
    "train_metrics_aggr_fn": "leave it out: result.train_metrics_clientapp has every client's loss and coefficient",
    "evaluate_metrics_aggr_fn": "leave it out: strategy.evaluation keeps every client's own numbers",
    "proximal_mu": "leave it out: the proximal term belongs into the clients' own train function",
    "server_learning_rate": "give server_lr",
    "server_momentum": 'give server_optimizer=adafed.optimizer("sgd", momentum=...)',
    "eta": 'give server_lr, and server_optimizer="adam" or another',
    "beta_1": 'give server_optimizer=adafed.optimizer("adam", beta1=...)',
    "beta_2": 'give server_optimizer=adafed.optimizer("adam", beta2=...)',
    "tau": 'give server_optimizer=adafed.optimizer("adam", tau=...)',
    "eta_l": "give local_lr, which only some rules need",
    "q": 'give the rule with its option, adafed.rule("qffl", q=...)',
    "client_learning_rate": "give local_lr",
    "train_loss_key": "leave it out: the metric is called loss, and loss= says which of the clients' losses is meant",
}


def nothing_else(other: Iterable[str], taken: Iterable[str]) -> None:
    """A sentence for each argument that is none, all at once: an app is moved here in one go."""
    taken = tuple(taken)
    told = []
    for key in other:
        near = get_close_matches(key, taken, 1)
        instead = INSTEAD.get(key) or (f"did you mean {near[0]}?" if near else f"it takes {quoted(taken)}")
        told.append(f"FairStrategy has no {key}; {instead}")
    if told:
        raise AdafedError("\n".join(told))


def whole(key: str, value: Any, least: int) -> None:
    """A whole number."""
    if not _is(value, Integral) or value < least:
        raise AdafedError(f"{key} is {value!r}; it must be a whole number, at least {least}")


def above_zero(key: str, value: Any, most: float | None = None) -> None:
    """A number."""
    if not _is(value, Real) or not 0 < value < float("inf") or (most is not None and value > most):
        limit = "" if most is None else f" and at most {most:g}"
        raise AdafedError(f"{key} is {value!r}; it must be a number above 0{limit}")


def rule_of(given: str | Rule) -> Rule:
    return _made("rule", given, rule, Rule)


def optimizer_of(given: str | ServerOptimizer) -> ServerOptimizer:
    return _made("server_optimizer", given, optimizer, ServerOptimizer)


def schedule_of(given: str | Schedule) -> Schedule:
    return _made("server_schedule", given, schedule, Schedule)


def _is(value: object, kind: type) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)


def _made(key: str, given: str | Part, maker: Callable[[str], Part], kind: Any) -> Part:
    """By its name, or as it is."""
    found: Any = maker(given) if isinstance(given, str) else given
    if not isinstance(found, kind):
        raise AdafedError(f"{key} is {given!r}; give a name, or what adafed.{maker.__name__} makes of one")
    return cast("Part", found)
