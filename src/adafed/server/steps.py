"""How long the server's step is: as `server.rate` says, or as long as it does no harm ("safe").

Theorem 2 of the paper promises every member of the cohort a lower loss where the step is short enough for the losses'
smoothness L, which nobody knows. The safe step asks instead: the members tell their losses at the model that a step
would lead to. It is halved until nobody is worse off than before, or doubled while everybody gains by the doubling.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple

from adafed.errors import AdafedError
from adafed.server.optimizers import SGD, ServerOptimizer
from adafed.server.schedules import Constant, Schedule

StepKind = Literal["rate", "safe"]
DOUBLINGS, HALVINGS = 2, 5  # of the first step, in a round, at most
LONGEST, SHORTEST = 2.0**20, 2.0**-20  # times the server's rate: where the search ends, on either side

Losses = Mapping[int, float]


class SafeStep(NamedTuple):
    """What was found. `length` is 0 where no step served everyone; `first` is where the next round begins. `losses` are
    the members' at the model that is taken, `harmed` who would have lost by the shortest step that was refused."""

    length: float
    first: float
    losses: Losses
    harmed: tuple[int, ...]
    tried: int


def safe_step(first: float, rate: float, before: Losses, losses: Callable[[float], Losses]) -> SafeStep:
    """The search, from the step `first`. `before` are the members' losses now, `losses` tells those after a step; who
    does not tell cannot hold the step, and nobody's word is not taken for everybody's consent.

    The next round begins where this one ended, but at most a halving lower: another cohort may bear a longer step.
    """
    step, there, tried = first, losses(first), 1
    harmed = _harmed(before, there)
    if there and not harmed:
        while tried <= DOUBLINGS and 2 * step <= LONGEST * rate:
            further, tried = losses(2 * step), tried + 1
            if not _all_gain(there, further):
                break
            step, there = 2 * step, further
        return SafeStep(step, step, there, (), tried)
    lower = max(first / 2, SHORTEST * rate)
    while tried <= HALVINGS:
        step, tried = step / 2, tried + 1
        there = losses(step)
        if there and not _harmed(before, there):
            return SafeStep(step, lower, there, harmed, tried)
        harmed = _harmed(before, there) or harmed
    return SafeStep(0.0, lower, {}, harmed, tried)


def _harmed(before: Losses, there: Losses) -> tuple[int, ...]:
    """Not-a-number harms."""
    return tuple(client for client, loss in there.items() if not loss <= before[client])


def _all_gain(there: Losses, further: Losses) -> bool:
    return there.keys() <= further.keys() and all(further[client] < loss for client, loss in there.items())


def require_plain(optimizer: ServerOptimizer, schedule: Schedule) -> None:
    """A safe step is one along the rule's direction, and as long as its own search finds."""
    if type(optimizer) is not SGD or optimizer.momentum:
        which = "sgd with momentum" if isinstance(optimizer, SGD) else optimizer.name
        raise AdafedError(
            f'server.step = "safe" does not go with server.optimizer = {which!r}, which steps along another direction '
            'than the rule\'s; it must be "sgd" without momentum'
        )
    if type(schedule) is not Constant:
        raise AdafedError(
            f'server.step = "safe" does not go with server.schedule = {schedule.name!r}: the search finds every '
            'length; the schedule must be "constant"'
        )
