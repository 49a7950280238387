"""Losses that their own history does not explain: a warning, and nothing is changed.

A client's loss may rise from one round it takes part in to the next, but hardly many times over while the cohort's does
not; and a loss that stays high goes with updates that stay long, for it is what they are made of.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from adafed.registry import at_least
from adafed.server_rules.base import Facts, Need, Numbers
from adafed.server_rules.guards.base import GUARDS, LookingBack, Verdict, median

MOST_CLIENTS = 10_000  # that are remembered, the last ones seen: the state is written every round


@GUARDS.register("history")
@dataclass(frozen=True)
class LossHistory(LookingBack):
    """Warns of a loss that jumps, or stays high while the client's updates shrink.

    Attributes:
        jump: Times its last loss, relative to the cohort's median change.
        stays: A loss above this share of its first is high still.
        shrinks: A length below this share of its first is short by now, relative to the cohort's median
            change.
    """

    summary: ClassVar[str] = "warns of losses that jump, or stay high while the client's updates shrink"
    jump: float = 10.0
    stays: float = 0.9
    shrinks: float = 0.1

    def __post_init__(self) -> None:
        at_least("history.jump", self.jump, 1.0)
        at_least("history.stays", self.stays, 0.0)
        at_least("history.shrinks", self.shrinks, 0.0)

    @property
    def needs(self) -> frozenset[Need]:
        return frozenset({"gram"})

    def judge_with(self, facts: Facts, needs: frozenset[Need], state: Numbers) -> Verdict:
        """The state has for each client its first loss and length and its last loss."""
        if facts.losses is None:
            return Verdict(facts)
        losses, norms = np.abs(facts.losses), facts.need_norms()
        seen = dict(state.get("seen", {}))
        both = zip(facts.clients, losses.tolist(), norms.tolist(), strict=True)
        told = [(k, seen.pop(client, None), client, loss, length) for k, (client, loss, length) in enumerate(both)]
        told = [one for one in told if one[3] > 0.0 and one[4] > 0.0]
        for _, before, client, loss, length in told:
            first_loss, first_length = before[:2] if before else (loss, length)
            seen[client] = [first_loss, first_length, loss]
        if len(seen) > MOST_CLIENTS:
            seen = dict(list(seen.items())[-MOST_CLIENTS:])
        known = [(k, *before, loss, length) for k, before, _, loss, length in told if before]
        return Verdict(facts, warned=self._warnings(known) if known else {}, state={"seen": seen})

    def _warnings(self, known: list[tuple[int, float, float, float, float, float]]) -> dict[int, str]:
        """Of place, first loss and length, last loss, and loss and length now."""
        _, first, length, last, losses, norms = np.array(known).T
        rise, shrunk = losses / last, norms / length
        jumped = rise > self.jump * max(1.0, median(rise))
        stuck = (losses > self.stays * first) & (shrunk < self.shrinks * min(1.0, median(shrunk)))
        warned: dict[int, str] = {}
        for i in np.flatnonzero(jumped | stuck).tolist():
            what = f"is {rise[i]:.3g} times its last one"
            if not jumped[i]:
                what = f"stays high while the update has shrunk to {shrunk[i]:.2g}"
            warned[known[i][0]] = f"loss {losses[i]:.3g} {what}"
        return warned
