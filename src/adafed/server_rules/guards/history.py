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
        losses, norms, seen = np.abs(facts.losses), facts.need_norms(), dict(state.get("seen", {}))
        known = [k for k, client in enumerate(facts.clients) if client in seen and losses[k] > 0 and norms[k] > 0]
        warned: dict[int, str] = {}
        if known:
            first, length, last = np.array([seen[facts.clients[k]] for k in known]).T
            rise, rest = losses[known] / last, losses[known] / first
            shrunk = norms[known] / length
            jumped = rise > self.jump * max(1.0, median(rise))
            stuck = (rest > self.stays) & (shrunk < self.shrinks * min(1.0, median(shrunk)))
            for i, k in enumerate(known):
                if jumped[i]:
                    warned[k] = f"loss {losses[k]:.3g} is {rise[i]:.3g} times its last one"
                elif stuck[i]:
                    warned[k] = f"loss {losses[k]:.3g} stays high while the update has shrunk to {shrunk[i]:.2g}"
        for k, client in enumerate(facts.clients):
            if losses[k] > 0 and norms[k] > 0:
                before = seen.pop(client, None)
                first_loss, first_length = before[:2] if before else (float(losses[k]), float(norms[k]))
                seen[client] = [first_loss, first_length, float(losses[k])]
        kept = dict(list(seen.items())[-MOST_CLIENTS:])
        return Verdict(facts, warned=warned, state={"seen": kept})
