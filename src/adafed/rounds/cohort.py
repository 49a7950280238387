"""Who takes part in a round: line 3 of Algorithm 1, with dropouts, stragglers and clients that join later.

All of it depends on the sampling seed and the round alone, so two rules with one seed see the same cohorts; unless
clients are drawn by their losses, which depend on the model and so on the rule.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from adafed.config.sections import CohortSection
from adafed.errors import AdafedError
from adafed.randomness import round_generator

CHOOSING, FAILING = 1, 2
Clients = npt.NDArray[np.int64]
NO_LOSSES: Mapping[int, float] = MappingProxyType({})
SMALLEST_WEIGHT = 1e-6  # of the largest
BY_LOSS = ("loss", "power-of-choice")  # the ways of sampling under which cohorts follow the model
OTHER_COHORTS = "clients are drawn by the losses they told (cohort.sampling), so methods differ in whom they see"


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

    @property
    def by_loss(self) -> bool:
        """Whether the losses that clients have told decide who is drawn."""
        return self.section.sampling in BY_LOSS

    def cohort(self, round: int, losses: Mapping[int, float] = NO_LOSSES) -> Cohort:
        """`losses` are the last that each client told, where they matter."""
        return self.among(round, np.arange(len(self.sizes)), losses)

    def among(self, round: int, clients: npt.NDArray[np.int64], losses: Mapping[int, float] = NO_LOSSES) -> Cohort:
        """A cohort of the usual size, or all of these clients if they are fewer."""
        here = self.joined(round, clients)
        count = self._count(len(here))
        random = round_generator(self.seed, round, CHOOSING)
        if count == len(here):
            chosen = here
        elif self.section.sampling == "size":
            sizes = self.sizes[here].astype(np.float64)
            chosen = random.choice(here, size=count, replace=False, p=sizes / sizes.sum())
        elif self.section.sampling == "loss":
            chosen = self._by_loss(random, here, count, losses)
        elif self.section.sampling == "power-of-choice":
            chosen = self._by_choice(random, here, count, losses)
        else:
            chosen = random.choice(here, size=count, replace=False)
        return self.these(round, chosen)

    def _by_loss(self, random: np.random.Generator, here: Clients, count: int, losses: Mapping[int, float]) -> Clients:
        """Those who have told nothing yet first; the others in proportion to a power of what they told last."""
        told = np.array([losses.get(int(client), np.nan) for client in here])
        unseen, seen = here[np.isnan(told)], here[~np.isnan(told)]
        if len(unseen) >= count:
            return random.choice(unseen, size=count, replace=False)
        known = np.abs(told[~np.isnan(told)])
        weights = (known / max(float(known.max(initial=0.0)), 1e-300)) ** self.section.power
        weights = np.maximum(weights, SMALLEST_WEIGHT)  # nobody is out for good
        drawn = random.choice(seen, size=count - len(unseen), replace=False, p=weights / weights.sum())
        return np.append(unseen, drawn)

    def _by_choice(
        self, random: np.random.Generator, here: Clients, count: int, losses: Mapping[int, float]
    ) -> Clients:
        """Power-of-choice (Cho et al. 2020): of candidates drawn by size, those with the largest losses."""
        number = min(max(self.section.candidates or 2 * count, count), len(here))
        sizes = self.sizes[here].astype(np.float64)
        drawn = random.choice(here, size=number, replace=False, p=sizes / sizes.sum())
        told = np.array([losses.get(int(client), np.inf) for client in drawn])  # unseen ones first
        return drawn[np.argsort(-told, kind="stable")[:count]]

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


def heard(losses: Mapping[str, float], asked: Iterable[int]) -> dict[str, float]:
    """The losses by which the next round's clients are drawn. Who was asked and told nothing of use counts as an
    average client from then on: drawn first as one unheard of, it would be drawn again in every round."""
    known = list(losses.values())
    usual = float(np.median(known)) if known else 0.0
    return {str(client): usual for client in asked} | dict(losses)


def largest_cohort(section: CohortSection, clients: int) -> int:
    """How many of so many clients take part when all have joined."""
    if section.count is not None:
        return min(section.count, clients)
    if section.fraction is not None:
        return max(1, round(section.fraction * clients))
    return clients
