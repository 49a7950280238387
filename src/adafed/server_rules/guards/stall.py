"""A step that stays far shorter than the mean update, round after round: a warning that says who holds it.

The updates of clients that disagree cancel, and near the end they do so rightly; a step that is a small part of the
mean update for many rounds is more often one client's doing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from adafed.registry import at_least
from adafed.server_rules.base import Facts, Need, Numbers
from adafed.server_rules.guards.base import GUARDS, LookingBack, Step, Verdict


@GUARDS.register("stall")
@dataclass(frozen=True)
class Stall(LookingBack):
    """Warns where the step stays far shorter than the mean update, and says who holds it.

    Attributes:
        below: Of the mean update's length.
        rounds: So many in a row.
    """

    summary: ClassVar[str] = "warns where the step stays far shorter than the mean update, and says who holds it"
    below: float = 0.1
    rounds: int = 5

    def __post_init__(self) -> None:
        at_least("stall.below", self.below, 0.0)
        at_least("stall.rounds", self.rounds, 1)

    def judge_with(self, facts: Facts, needs: frozenset[Need], state: Numbers) -> Verdict:
        return Verdict(facts)

    def learned(self, step: Step, state: Numbers) -> tuple[Numbers, dict[int, str]]:
        short = step.norm < self.below * step.mean_norm
        rounds = int(state.get("rounds", 0)) + 1 if short else 0
        if rounds < self.rounds or not len(step.shares):
            return {"rounds": rounds}, {}
        holds = int(np.argmax(step.shares))
        if step.shares[holds] <= 0.0:
            return {"rounds": rounds}, {}  # of a step that is all rounding nobody holds a share
        told = (
            f"holds {100 * step.shares[holds]:.0f} % of a step that has been below {self.below:g} of the mean update "
            f"for {rounds} rounds"
        )
        if step.shares.sum() < 0.5:
            told += "; clients that are remembered hold most of it"
        return {"rounds": rounds}, {holds: told}
