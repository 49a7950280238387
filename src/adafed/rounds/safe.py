"""The safe step of a round: the models it may lead to are shown to the cohort, and what was found is told in words."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from adafed.rounds.replies import LOSS, Reply
from adafed.server.state import ServerState
from adafed.server.steps import Losses, SafeStep, safe_step

NAMED = 5  # clients named in a sentence


@dataclass(frozen=True)
class Trying:
    """How an engine has clients tell their training losses at some models; `at_once` models go in a phase. One that
    does not answer is left out."""

    tell: Callable[[Sequence[int], Sequence[ServerState]], Sequence[Mapping[int, float]]]
    at_once: int = 1


def found_safe(
    trying: Trying, members: Sequence[Reply], stepped: Callable[[float], ServerState], first: float, rate: float
) -> SafeStep:
    """The search among the members of the cohort; `stepped` makes the state after a step of some length."""
    told = {reply.client: reply.numbers[LOSS] for reply in members if LOSS in reply.numbers}
    before = {client: loss for client, loss in told.items() if loss == loss}
    return safe_step(first, rate, before, _Candidates(trying, stepped, before))


class _Candidates:
    """Losses by step. Steps that the search may want next go along in the phase, where the engine takes several: what
    is found does not depend on it."""

    def __init__(self, trying: Trying, stepped: Callable[[float], ServerState], before: Losses) -> None:
        self.trying = trying
        self.stepped = stepped
        self.before = before
        self.known: dict[float, Losses] = {}

    def __call__(self, step: float) -> Losses:
        if step not in self.known:
            steps = self._along(step)[: self.trying.at_once]
            found: Sequence[Losses] = [{} for _ in steps]
            if self.before:
                found = self.trying.tell(list(self.before), [self.stepped(one) for one in steps])
            for one, losses in zip(steps, found, strict=True):
                self.known[one] = {client: loss for client, loss in losses.items() if client in self.before}
        return self.known[step]

    def _along(self, step: float) -> list[float]:
        if not self.known:
            return [step, 2 * step, step / 2]
        if step > max(self.known):
            return [step]  # no more doublings than it takes
        return [step, step / 2, step / 4]


def notes(found: SafeStep, members: Iterable[int], name_of: Callable[[int], str]) -> dict[str, Any]:
    """How many steps were tried, who had it shortened, and who did not say."""
    told: dict[str, Any] = {"steps_tried": found.tried}
    if found.harmed:
        told["shortened_for"] = [name_of(client) for client in found.harmed]
    silent = [name_of(client) for client in members if client not in found.losses]
    if found.length and silent:
        told["did_not_tell"] = silent
    return told


def in_words(found: SafeStep, name_of: Callable[[int], str]) -> str:
    """Why no step was taken."""
    if not found.harmed:
        return "no client told its loss at the model that a step would lead to"
    names = [name_of(client) for client in found.harmed[:NAMED]]
    more = len(found.harmed) - len(names)
    who = ", ".join(names) + (f" and {more} more" if more else "")
    return f"no step leaves everyone as well off; the shortest that was tried would have cost {who}"
