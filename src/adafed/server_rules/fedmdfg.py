"""FedMDFG (Pan et al. 2023): a common descent direction of the clients, of absent ones and, where losses differ much,
of the angle by which they do."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from adafed.algebra.hulls import simplex_point
from adafed.registry import at_least
from adafed.server_rules.base import Answer, Facts, Matrix, Need, Numbers, Rule, Vector, register

CANCELLED = 1e-7  # of the length of its terms: a sum's squared length is known to 1e-16 of theirs squared


@register("fedmdfg")
@dataclass(frozen=True)
class FedMDFG(Rule):
    """The shortest vector in the convex hull of these rows, lengthened to the mean of the first ones:

    the updates, scaled to their mean length mu; where the losses F are further than `theta` degrees from equal ones,
    the gradient of that angle, sum_k h_k g_k with h = cos F/||F|| - 1/||1|| of length 1; and, with `absent`, last
    round's updates of clients that are not in this cohort, as they were scaled then.

    No rate g_k . d is negative, nor that of the angle. theta = 90 and absent=False is MGDA on updates of one length.
    Its authors go on to search the step, halving it until no loss rises: that is server.step = "safe", for this rule
    as for any other, which begins at the last round's length, where theirs begins at the rate or, with the clients of
    the round before, at 2^s times it. They switch the angle on as well when a client's loss has risen; here the angle
    alone decides.

    Attributes:
        theta: The angle in degrees from which on the losses count as unequal; 90: never.
        absent: Whether last round's updates of absent clients are among the rows.
    """

    summary = "common descent of clients, absent clients and the losses' inequality"
    source = "Pan et al. 2023"
    theta: float = 11.25
    absent: bool = True

    def __post_init__(self) -> None:
        at_least("rule.theta", self.theta, 0.0, strictly=True, most=90.0)

    @property
    def needs(self) -> frozenset[Need]:
        return frozenset({"losses", "gram"})

    @property
    def remembers(self) -> int:
        return int(self.absent)

    @property
    def previous(self) -> bool:
        """For the mean length of last round's updates, to which all of them were scaled."""
        return self.absent

    def answer(self, facts: Facts, state: Numbers) -> Answer:
        gram, count = facts.need_gram(), facts.count
        lengths = np.sqrt(np.diag(gram))
        scaled = np.diag(_mean(lengths[:count]) / lengths[:count]) @ np.eye(count, len(gram))
        rows = [scaled]
        angle, uneven = _inequality(facts.need_losses())
        if angle > self.theta:
            rows.append((uneven @ scaled)[None])
        rows.append(_absent(facts, lengths))
        combinations = np.concatenate(rows)
        lengths_of_rows = np.sqrt(np.maximum(np.einsum("ij,jk,ik->i", combinations, gram, combinations), 0.0))
        terms = np.abs(combinations) @ lengths
        combinations = combinations[lengths_of_rows > CANCELLED * terms]  # others point nowhere, and veto nothing
        inner = combinations @ gram @ combinations.T
        weights = simplex_point(inner, np.ones(len(inner)))
        found, added = weights @ combinations, float(weights @ np.abs(combinations) @ lengths)
        notes = {"angle": angle, "fair": angle > self.theta}
        length, mean = _length(gram, found), scaled.mean(axis=0)
        if length <= CANCELLED * added:  # Pareto-stationary: only rounding is left
            return Answer(np.zeros(len(gram)), notes=notes | {"cancelled": True})
        return Answer(found * (_length(gram, mean) / length), notes=notes)


def _inequality(losses: Vector) -> tuple[float, Vector]:
    """The angle between the losses and equal ones, in degrees, and the unit vector along which it grows."""
    largest = np.abs(losses).max()
    equal = np.full(len(losses), 1.0 / math.sqrt(len(losses)))
    if not largest > 0:
        return 0.0, np.zeros(len(losses))
    own = losses / largest
    own = own / np.linalg.norm(own)
    cosine = float(np.clip(own @ equal, -1.0, 1.0))
    uneven = cosine * own - equal
    length = float(np.linalg.norm(uneven))  # the sine of the angle, and the better known of the two where it is small
    if not length > 0:
        return 0.0, np.zeros(len(losses))
    return math.degrees(math.atan2(length, cosine)), uneven / length


def _absent(facts: Facts, lengths: Vector) -> Matrix:
    """Rows for last round's updates of clients that are not here, at the mean length of that round."""
    places = [facts.count + i for i, (_, round_) in enumerate(facts.memory) if round_ == facts.round - 1]
    here = set(facts.clients)
    gone = [place for place in places if facts.memory[place - facts.count][0] not in here]
    rows = np.zeros((len(gone), len(lengths)))
    rows[range(len(gone)), gone] = _mean(lengths[places]) / lengths[gone] if gone else 0.0
    return rows


def _mean(lengths: Vector) -> float:
    return float(lengths.mean())


def _length(gram: Matrix, vector: Vector) -> float:
    return math.sqrt(max(float(vector @ gram @ vector), 0.0))
