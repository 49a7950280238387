"""Who takes part in a round: line 3 of Algorithm 1, with dropouts, stragglers and clients that join later.

All of it depends on the sampling seed and the round alone, so two rules with one seed see the same cohorts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from adafed.config.sections import CohortSection
from adafed.errors import AdafedError
from adafed.randomness import round_generator

CHOOSING, FAILING = 1, 2


@dataclass(frozen=True)
class Cohort:
    """Indices of the clients that were sent the model, in ascending order; who of them never answers; and the share of
    its local steps that each does."""

    clients: tuple[int, ...]
    lost: frozenset[int]
    shares: dict[int, float]

    @property
    def answering(self) -> list[int]:
        return [client for client in self.clients if client not in self.lost]


class Sampler:
    def __init__(self, section: CohortSection, ids: tuple[str, ...], sizes: npt.NDArray[np.int64], seed: int) -> None:
        for client in section.join:
            if client not in ids:
                raise AdafedError(f"cohort.join names client {client!r}, which is not in the federation of {len(ids)}")
        if section.count is not None and section.count > len(ids):
            raise AdafedError(f"cohort.count = {section.count} is more than the federation's {len(ids)} clients")
        self.section = section
        self.seed = seed
        self.sizes = sizes
        self.first_round = np.array([section.join.get(client, 1) for client in ids])

    @property
    def largest(self) -> int:
        """The largest cohort there can be."""
        return largest_cohort(self.section, len(self.sizes))

    def cohort(self, round: int) -> Cohort:
        return self.among(round, np.arange(len(self.sizes)))

    def among(self, round: int, clients: npt.NDArray[np.int64]) -> Cohort:
        """A cohort of the usual size, or all of these clients if they are fewer."""
        here = self.joined(round, clients)
        count = self._count(len(here))
        random = round_generator(self.seed, round, CHOOSING)
        if count == len(here):
            chosen = here
        elif self.section.sampling == "size":
            sizes = self.sizes[here].astype(np.float64)
            chosen = random.choice(here, size=count, replace=False, p=sizes / sizes.sum())
        else:
            chosen = random.choice(here, size=count, replace=False)
        return self.these(round, chosen)

    def joined(self, round: int, clients: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Those of them who are there in this round."""
        return clients[self.first_round[clients] <= round]

    def these(self, round: int, chosen: npt.NDArray[np.int64]) -> Cohort:
        """A cohort of just these clients, with the fate that the round has for each."""
        clients = tuple(np.sort(chosen).tolist())
        if not self.section.dropout and not self.section.stragglers:
            return Cohort(clients, frozenset(), dict.fromkeys(clients, 1.0))
        # Drawn for everyone whether used or not, so that dropouts do not change who is a straggler.
        fate = round_generator(self.seed, round, FAILING).random((len(self.sizes), 3))
        lost = frozenset(client for client in clients if fate[client, 0] < self.section.dropout)
        slow = {c: float(fate[c, 2]) if fate[c, 1] < self.section.stragglers else 1.0 for c in clients}
        return Cohort(clients, lost, slow)

    def _count(self, here: int) -> int:
        return min(largest_cohort(self.section, len(self.sizes)), here)


def largest_cohort(section: CohortSection, clients: int) -> int:
    """How many of so many clients take part when all have joined."""
    if section.count is not None:
        return min(section.count, clients)
    if section.fraction is not None:
        return max(1, round(section.fraction * clients))
    return clients
