"""Losses that their own history does not explain: a warning, and nothing is changed.

A client's loss may rise from one round it takes part in to the next, but hardly many times over while the cohort's does
not; and a loss that stays high goes with updates that stay long, for it is what they are made of.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

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
        seen = dict(state.get("seen", {}))
        known: list[tuple[int, float, float, float, float]] = []
        both = zip(facts.clients, map(abs, facts.losses.tolist()), facts.need_norms().tolist(), strict=True)
        for k, (client, loss, length) in enumerate(both):
            before = seen.pop(client, None)  # so that the last ones seen stand last
            if loss > 0.0 and length > 0.0:
                first_loss, first_length, last = before or (loss, length, loss)
                seen[client] = [first_loss, first_length, loss]
                if before:
                    known.append((k, loss, first_loss, loss / last, length / first_length))
        if len(seen) > MOST_CLIENTS:
            seen = dict(list(seen.items())[-MOST_CLIENTS:])
        return Verdict(facts, warned=self._warnings(known) if known else {}, state={"seen": seen})

    def _warnings(self, known: list[tuple[int, float, float, float, float]]) -> dict[int, str]:
        """Of place, loss, first loss, and the shares of the last loss and of the first length that are left."""
        jump = self.jump * max(1.0, median([rise for _, _, _, rise, _ in known]))
        short = self.shrinks * min(1.0, median([shrunk for _, _, _, _, shrunk in known]))
        warned: dict[int, str] = {}
        for k, loss, first, rise, shrunk in known:
            if rise > jump:
                warned[k] = f"loss {loss:.3g} is {rise:.3g} times its last one"
            elif loss > self.stays * first and shrunk < short:
                warned[k] = f"loss {loss:.3g} stays high while the update has shrunk to {shrunk:.2g}"
        return warned
