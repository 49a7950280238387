"""A bounded veto: one client that opposes nearly all others takes away no more than half of the step they agree on.

Under rules that solve with the Gram matrix no step is taken that makes a client worse off, so an update turned round
stops them all; under the others it pulls against them. Where the others agree, such an update is not dropped: its own
part is made no longer than half of the usual, and as much of the others' mean a is added as makes it go along with a,
half as far as a itself. Where the others do not agree among themselves, opposing them is what every client does, and
nothing is bounded.

Why half: every vector of the hull of updates with g . a >= ||a||^2 / 2 has that product too, so a rule that takes one
of them goes half as far along a, whatever the one client sends. Its loss counts as the others' median at most, or gamma
would give the veto back.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from adafed.registry import at_least
from adafed.server_rules.base import Facts, Need
from adafed.server_rules.guards.base import GUARDS, Guard, Verdict

FEWEST = 4  # clients among whom three can agree against one


@GUARDS.register("veto")
@dataclass(frozen=True)
class BoundedVeto(Guard):
    summary: ClassVar[str] = "a client that opposes nearly all others takes away at most half of the step they agree on"
    opposed: float = 0.65  # share of the others whose updates an update must oppose
    cosine: float = 0.2  # how far it must point against their sum
    agreement: float = 1.1  # how much longer their sum must be than that of updates at right angles
    longer: float = 1.2  # than the median it must be under rules that only add up: there a short one does no harm
    left: float = 0.5  # of the step of the others
    length: float = 0.5  # of the others' median that its own part may have

    def __post_init__(self) -> None:
        at_least("veto.opposed", self.opposed, 0.0, most=1.0)
        at_least("veto.cosine", self.cosine, 0.0, most=1.0)
        at_least("veto.agreement", self.agreement, 1.0)
        at_least("veto.left", self.left, 0.0, most=1.0)

    @property
    def needs(self) -> frozenset[Need]:
        return frozenset({"gram"})

    def judge(self, facts: Facts, needs: frozenset[Need]) -> Verdict:
        gram, norms, count = facts.need_gram(), facts.need_norms(), facts.count
        if count < FEWEST or not norms.all():
            return Verdict(facts)
        cosines = gram / norms / norms[:, None]
        along = cosines.sum(axis=1) - 1.0  # with the sum of the others, all of length one
        others = np.sqrt(np.maximum(cosines.sum() - 2.0 * along - 1.0, 0.0))
        opposing = (
            ((cosines < 0).sum(axis=1) >= self.opposed * (count - 1))
            & (along < -self.cosine * others)
            & (others >= self.agreement * np.sqrt(count - 1))
        )
        if "gram" not in needs:
            opposing &= norms > self.longer * np.median(norms)
        if not opposing.any() or 2 * opposing.sum() >= count:
            return Verdict(facts)
        mean = ~opposing / (count - opposing.sum())
        step = gram @ mean
        squared = float(mean @ step)
        if squared <= 0.0:
            return Verdict(facts)
        mixing, bounded, usual = np.eye(count), {}, float(np.median(norms[~opposing]))
        losses = None if facts.losses is None else facts.losses.copy()
        for k in np.flatnonzero(opposing).tolist():
            part = float(step[k]) / squared
            mixing[k, k] = min(1.0, self.length * usual / norms[k])
            mixing[k] += max(self.left - mixing[k, k] * part, 0.0) * mean
            if losses is not None:
                losses[k] = min(losses[k], np.median(losses[~opposing]))
            bounded[k] = f"opposes the others, {part:.2g} along their mean: counts as {self.left:g}"
        return Verdict(replace(facts, losses=losses), mixing=mixing, bounded=bounded)
