"""Aggregation of PyTorch state_dicts: parameters go through the rule, BatchNorm statistics are averaged beside it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from adafed.errors import AdafedError
from adafed.server.aggregate import Aggregate, aggregate
from adafed.server.given import Values
from adafed.server_rules.base import Rule
from adafed.server_rules.guards import Guard, resolved
from adafed.server_rules.guards.sizes import counted

StateDict = Mapping[str, torch.Tensor]
STATISTICS = ("running_mean", "running_var")


@dataclass(frozen=True)
class StateAggregate:
    """The outcome of a round on named tensors.

    Attributes:
        outcome: What `aggregate` found for the parameters, side by side.
        directions: With the names and shapes of the parameters.
        statistics: The clients' averages.
        untouched: Integer buffers (step counters and the like), which have no average and are left to the caller.
    """

    outcome: Aggregate
    directions: dict[str, torch.Tensor]
    statistics: dict[str, torch.Tensor]
    untouched: tuple[str, ...]

    def applied(self, before: StateDict, server_lr: float = 1.0) -> dict[str, torch.Tensor]:
        """The new global state: parameters moved, statistics replaced, the rest as it was."""
        stepped = {name: before[name] - server_lr * step for name, step in self.directions.items()}
        return {name: stepped.get(name, self.statistics.get(name, value)) for name, value in before.items()}


def aggregate_states(
    rule: Rule,
    before: StateDict,
    after: Sequence[StateDict],
    *,
    sizes: Values | None = None,
    statistics: Collection[str] | None = None,
    **facts: Any,
) -> StateAggregate:
    """Aggregate what K clients made of the global state `before`.

    Floating tensors are parameters, unless their name ends in running_mean or running_var (or is in `statistics`):
    those are averaged over the clients that were not dropped, by sample count where `sizes` is given. A client whose
    statistics or sample count are of no use has no part in those averages.

    Args:
        rule: What `adafed.rule(name, ...)` returns.
        before: `state_dict()` of the global model.
        after: One `state_dict()` a client.
        sizes: Sample counts of the clients.
        statistics: Names of tensors that are averaged; None: those of BatchNorm.
        **facts: All else that `aggregate` takes: `losses`, `clients`, `state`, ...

    Returns:
        The outcome, and `applied(before, server_lr)`, which is the new state.

    Raises:
        AdafedError: Where states differ in names or shapes, and as for `aggregate`.

    Examples:
        >>> import torch, adafed
        >>> before = {"weight": torch.zeros(2)}
        >>> after = [{"weight": torch.tensor([-1.0, 0.0])}, {"weight": torch.tensor([0.0, -3.0])}]
        >>> out = adafed.aggregate_states(adafed.rule("fedavg", weighted=False), before, after)
        >>> out.applied(before, server_lr=1.0)["weight"]
        tensor([-0.5000, -1.5000])
    """
    if not isinstance(after, Sequence) or isinstance(after, str):
        raise AdafedError(f"after is a {type(after).__name__}; give a list with the state_dict of each client")
    if not after:
        raise AdafedError("after is an empty list; give the state_dict of at least one client")
    for who, state in (("before", before), *((f"client {k}", one) for k, one in enumerate(after))):
        _require_tensors(who, state)
    for k, state in enumerate(after):
        for name, value in before.items():
            if name not in state or state[name].shape != value.shape:
                found = "missing" if name not in state else f"of shape {tuple(state[name].shape)}"
                raise AdafedError(f"client {k}: {name} is {found}; it must have shape {tuple(value.shape)}")
    floating = [name for name, value in before.items() if value.is_floating_point()]
    chosen = [n for n in floating if n.rsplit(".", 1)[-1] in STATISTICS] if statistics is None else list(statistics)
    for name in chosen:
        if name not in floating:
            raise AdafedError(f"statistics has {name!r}; it must name floating tensors among {', '.join(floating)}")
    parameters = [name for name in floating if name not in chosen]
    if not parameters:
        raise AdafedError(f"no parameter is left among {', '.join(before) or 'nothing'}; give at least one")
    updates = [torch.cat([moved(before[n], state[n]).reshape(-1) for n in parameters]) for state in after]
    outcome = aggregate(rule, updates, sizes=sizes, **facts)

    pieces = torch.split(outcome.direction, [before[name].numel() for name in parameters])
    directions = {
        name: piece.view_as(before[name]).to(before[name].dtype) for name, piece in zip(parameters, pieces, strict=True)
    }
    kept = [k for k, rate in enumerate(outcome.diagnostics.rates) if rate == rate]
    kept = [k for k in kept if all(usable(after[k][name], before[name]) for name in chosen)]
    weights = _weights(sizes, kept, resolved(facts.get("guards", ())))
    averages = {
        name: sum((w * after[k][name].double() for k, w in weights.items()), torch.zeros(())).to(before[name].dtype)
        for name in (chosen if weights else ())
    }
    untouched = tuple(name for name in before if name not in directions and name not in averages)
    return StateAggregate(outcome, directions, averages, untouched)


def moved(before: torch.Tensor, after: torch.Tensor) -> torch.Tensor:
    """before - after; 0 where both are the same, also where that is infinite, as in a mask that nobody trains."""
    difference = before - after
    return difference if bool(difference.isfinite().all()) else difference.masked_fill(before == after, 0.0)


def usable(own: torch.Tensor, sent: torch.Tensor) -> bool:
    """Whether a client's statistics are finite wherever they are not as they were sent out."""
    finite = own.isfinite()
    return bool(finite.all()) or bool((finite | (own == sent) | (own.isnan() & sent.isnan())).all())


def _require_tensors(who: str, state: object) -> None:
    if not isinstance(state, Mapping):
        raise AdafedError(f"{who} is a {type(state).__name__}; it must be a state_dict")
    for name, value in state.items():
        if not isinstance(value, torch.Tensor):
            raise AdafedError(f"{who}: {name} is a {type(value).__name__}; it must be a tensor")
        if value.layout != torch.strided or value.device.type == "meta":
            raise AdafedError(f"{who}: {name} is sparse or on the meta device; it must hold all its numbers")


def _weights(sizes: Values | None, kept: list[int], guards: Sequence[Guard]) -> dict[int, float]:
    """Shares of the kept clients by sample count, as guards let it count; plain where none is given or of use."""
    counts = {k: float((sizes[k] if sizes is not None else 1.0) or 0.0) for k in kept}
    counts = {k: count for k, count in counts.items() if 0.0 < count < float("inf")} or dict.fromkeys(kept, 1.0)
    counts = dict(zip(counts, counted(list(counts.values()), guards), strict=True))
    total = sum(counts.values())
    return {k: count / total for k, count in counts.items()}
