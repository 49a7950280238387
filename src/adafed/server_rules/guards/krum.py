"""A filter for several liars together, from the Gram matrix: multi-Krum (Blanchard et al., NeurIPS 2017). Off by
default.

Each client's score is the sum of the squared distances to its nearest others, as many as there would be honest ones but
two; the clients with the largest scores are dropped. That is every round the most unusual share of the cohort, honest
or not: the price is theirs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from adafed.registry import at_least
from adafed.server_rules.base import Facts, Need, client_key
from adafed.server_rules.guards.base import GUARDS, Guard, Verdict


@GUARDS.register("krum")
@dataclass(frozen=True)
class MultiKrum(Guard):
    """Drops the clients whose updates are farthest from the rest, honest or not (Blanchard et al. 2017).

    Attributes:
        share: Of the clients that may lie.
    """

    summary: ClassVar[str] = "drops the share of the cohort whose updates are farthest from the rest, honest or not"
    share: float = 0.3

    def __post_init__(self) -> None:
        at_least("krum.share", self.share, 0.0, strictly=True, most=0.5)

    @property
    def needs(self) -> frozenset[Need]:
        return frozenset({"gram"})

    def judge(self, facts: Facts, needs: frozenset[Need]) -> Verdict:
        count = facts.count
        liars = int(self.share * count + 1e-9)
        nearest = count - liars - 2
        if liars == 0 or nearest < 1:
            return Verdict(facts)
        gram = facts.need_gram()
        squared = np.diag(gram)
        distances = np.maximum(squared + squared[:, None] - 2.0 * gram, 0.0)
        distances.flat[:: count + 1] = np.inf  # not its own neighbour
        scores = np.sort(distances, axis=1)[:, :nearest].sum(axis=1)
        order = sorted(range(count), key=lambda k: (-scores[k], client_key(facts.clients[k])))
        usual = float(np.median(scores))
        reason = "update is among the {} farthest from the rest: score {:.3g}, median {:.3g}"
        return Verdict(facts, dropped={k: reason.format(liars, scores[k], usual) for k in order[:liars]})
