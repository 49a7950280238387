"""Copies and near-copies of one update count as one, recognised from the Gram matrix.

Two updates are near-copies if they point the same way far more closely than is usual in the cohort: where clients are
alike and all updates are close, none is one. Of a group the first client by id stands for all, with the median of their
losses and sample counts: who copied whom cannot be known.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from adafed.registry import at_least
from adafed.server_rules.base import Facts, Need, client_key
from adafed.server_rules.guards.base import GUARDS, Guard, Verdict, median


@GUARDS.register("copies")
@dataclass(frozen=True)
class Copies(Guard):
    """Updates that point the same way far more closely than is usual count as one.

    Attributes:
        nearness: How close is a copy, as a share of the median distance between two updates of length one.
    """

    summary: ClassVar[str] = "updates far closer to each other than is usual in the cohort count as one"
    nearness: float = 0.03

    def __post_init__(self) -> None:
        at_least("copies.nearness", self.nearness, 0.0, most=1.0)

    @property
    def needs(self) -> frozenset[Need]:
        return frozenset({"gram"})

    def judge(self, facts: Facts, needs: frozenset[Need]) -> Verdict:
        count, norms = facts.count, facts.need_norms()
        if count < 3:
            return Verdict(facts)
        lengths = norms if all(norms.tolist()) else np.where(norms > 0, norms, np.inf)
        cosines = facts.need_gram() / lengths / lengths[:, None]
        farthest = 1.0 - float(cosines.min())  # half the squared distance
        cosines.flat[:: count + 1] = -np.inf  # not of itself
        if 1.0 - float(cosines.max()) > self.nearness**2 * farthest:  # so it is for the median, which takes sorting
            return Verdict(facts)
        squared = 1.0 - cosines
        usual = median(np.sort(squared, axis=None)[: count * (count - 1)].tolist())
        near = squared <= self.nearness**2 * usual
        if usual <= 0.0 or not near.any():
            return Verdict(facts)
        return _as_one(facts, near)


def _as_one(facts: Facts, near: npt.NDArray[np.bool_]) -> Verdict:
    losses = None if facts.losses is None else facts.losses.copy()
    sizes = None if facts.sizes is None else facts.sizes.copy()
    dropped: dict[int, str] = {}
    bounded: dict[int, str] = {}
    for first in sorted(np.flatnonzero(near.any(axis=1)).tolist(), key=lambda k: client_key(facts.clients[k])):
        if first in dropped:
            continue
        group = [first, *(k for k in np.flatnonzero(near[first]).tolist() if k not in dropped and k not in bounded)]
        if len(group) == 1:
            continue
        for values in (losses, sizes):
            if values is not None:
                values[first] = np.median(values[group])
        bounded[first] = f"stands for {len(group)} clients with the same update"
        dropped |= dict.fromkeys(group[1:], f"update is that of client {facts.clients[first]} too: they count as one")
    return Verdict(replace(facts, losses=losses, sizes=sizes), dropped=dropped, bounded=bounded)
