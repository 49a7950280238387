"""Screening, which runs before any other guard and under every rule: clients whose numbers are of no use are dropped.

That an update holds only finite numbers is found while the rows are read, and is no guard's to say.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from adafed.server_rules.base import Facts, Need
from adafed.server_rules.guards.base import GUARDS, Guard, Verdict, median

IDLE = 1e-9  # an update this much shorter than the cohort's median is rounding: it points nowhere


@GUARDS.register("facts")
@dataclass(frozen=True)
class UsableFacts(Guard):
    """A loss that is no number is a sign of diverged training, so it costs a client the round under any rule; a sample
    count or an accuracy only where it is needed."""

    summary: ClassVar[str] = "drops clients whose loss, sample count or accuracy is of no use; always there"

    def judge(self, facts: Facts, needs: frozenset[Need]) -> Verdict:
        losses, sizes, accuracies = facts.losses, facts.sizes, facts.accuracies
        dropped: dict[int, str] = {}
        if accuracies is not None and "accuracies" in needs:
            bad = np.flatnonzero(~((accuracies >= 0) & (accuracies <= 100)))  # as a share or in percent
            dropped |= {int(k): f"accuracy is {accuracies[k]}" for k in bad}
        if sizes is not None and "sizes" in needs:
            bad = np.flatnonzero(~((sizes > 0) & (sizes < np.inf)))
            dropped |= {int(k): f"sample count is {sizes[k]}" for k in bad}
        if losses is not None:
            dropped |= {int(k): f"loss is {losses[k]}" for k in np.flatnonzero(~np.isfinite(losses))}
        return Verdict(facts, dropped=dropped)


@GUARDS.register("negligible")
@dataclass(frozen=True)
class Negligible(Guard):
    """For rules that solve with the Gram matrix, in which a direction made of rounding would veto every step."""

    summary: ClassVar[str] = (
        "drops updates of next to no length, for rules that solve with the Gram matrix; always there"
    )

    def judge(self, facts: Facts, needs: frozenset[Need]) -> Verdict:
        if "gram" not in needs or not facts.count:
            return Verdict(facts)
        norms = facts.need_norms().tolist()  # they are at hand with the matrix
        usual = median(norms)
        reason = "update is negligible: length {:.3g}, median {:.3g}"
        idle = {k: reason.format(norm, usual) for k, norm in enumerate(norms) if norm <= IDLE * usual}
        return Verdict(facts, dropped=idle)
