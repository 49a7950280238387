"""A bounded veto: one client that opposes nearly all others takes away no more than half of the step they agree on.

Under rules that solve with the Gram matrix no step is taken that makes a client worse off, so an update turned round
stops them all; under the others it pulls against them. Where the others agree, such an update is not dropped: its own
part is made no longer than half of the usual, and as much of the others' mean a is added as makes it go along with a as
far as a itself. What it says at right angles to a stays in it. Where the others do not agree among themselves, opposing
them is what every client does, and nothing is bounded.

A client that has opposed the others in most of the rounds it took part in lately stays bounded while it points against
them at all: late in training the others agree less, and a liar would get its veto back.

An honest client may oppose all others too: one that alone has a class. It is told from a liar by what comes of it. A
step along its update makes its loss fall, a step against it makes it rise; for an update turned round it is the other
way. Who keeps this promise, round after round, is left alone.

Why it is enough: where the others' updates have g . a >= ||a||^2 / 2, so has every vector of the hull of them and the
bounded one. A rule that takes one of these goes half as far along a, whatever the one client sends. Its loss counts as
the others' median at most, or gamma would give the veto back.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import copysign, sqrt
from typing import ClassVar

import numpy as np

from adafed.registry import at_least
from adafed.server_rules.base import Facts, Matrix, Need, Numbers
from adafed.server_rules.guards.base import GUARDS, LookingBack, Step, Verdict, median

FEWEST = 4  # clients among whom three can agree against one
RECENT = 0.2  # the weight of the newest round in a client's score
FORGOTTEN = 0.01  # a score that is not worth keeping
LONGEST = 2.5  # medians: longer updates of the others count as this in their mean


@GUARDS.register("veto")
@dataclass(frozen=True)
class BoundedVeto(LookingBack):
    """A client that opposes nearly all others, who agree among themselves, takes away at most half of their step.

    Attributes:
        opposed: The share of the others whose updates an update must oppose.
        cosine: How far it must point against their sum.
        agreement: How much longer their sum must be than that of updates at right angles.
        longer: How much longer than the median it must be under rules that only add up: there a short one does
            no harm.
        left: How far it goes along with their mean, at least, of the mean itself.
        length: How much of the others' median its own part may have.
        lately: The share of its last rounds in which a client must have opposed to stay bounded.
        kept: Promises kept less promises broken, of its last rounds, from which on it is left alone.
    """

    summary: ClassVar[str] = "a client that opposes nearly all others takes away at most half of the step they agree on"
    opposed: float = 0.65
    cosine: float = 0.2
    agreement: float = 1.1
    longer: float = 1.2
    left: float = 1.0
    length: float = 0.5
    lately: float = 0.5
    kept: float = 0.5

    def __post_init__(self) -> None:
        at_least("veto.opposed", self.opposed, 0.0, most=1.0)
        at_least("veto.cosine", self.cosine, 0.0, most=1.0)
        at_least("veto.agreement", self.agreement, 1.0)
        at_least("veto.longer", self.longer, 0.0)
        at_least("veto.left", self.left, 0.0, most=1.0)
        at_least("veto.length", self.length, 0.0, strictly=True)
        at_least("veto.lately", self.lately, 0.0, strictly=True)
        at_least("veto.kept", self.kept, 0.0, strictly=True)

    @property
    def needs(self) -> frozenset[Need]:
        return frozenset({"gram"})

    def judge_with(self, facts: Facts, needs: frozenset[Need], state: Numbers) -> Verdict:
        """The state has an entry for each client that has opposed the others lately: how often it did, how well it
        kept its promises, and its last loss and rate."""
        gram, norms, count = facts.need_gram(), facts.need_norms(), facts.count
        if not all(norms.tolist()):
            return self._among_moving(facts, needs, state)
        if count < FEWEST:
            return Verdict(facts)
        cosines = gram / norms / norms[:, None]
        along = (cosines.sum(axis=1) - 1.0).tolist()  # with the sum of the others, all of length one
        against = [k for k, one in enumerate(along) if one < 0.0]
        if not state and not against:
            return Verdict(facts)
        opposing = self._opposing(cosines, along)
        if opposing and "gram" not in needs:
            least = self.longer * median(norms.tolist())
            opposing = [k for k in opposing if norms[k] > least]
        if not state and not opposing:
            return Verdict(facts, state={})
        state = _looked_at(facts, opposing, state)
        known = [(k, state[facts.clients[k]]) for k in against if facts.clients[k] in state]
        known = [(k, one) for k, one in known if k in opposing or one["opposed"] >= self.lately]
        opposing = [k for k, one in known if one["kept"] < self.kept]
        if not opposing or 2 * len(opposing) >= count:
            return Verdict(facts, state=state)
        return replace(self._bounded(facts, opposing), state=state)

    def _among_moving(self, facts: Facts, needs: frozenset[Need], state: Numbers) -> Verdict:
        """As if those whose update is zero had not come: they have no direction to agree or disagree with."""
        there = np.flatnonzero(facts.need_norms())
        moving = replace(
            facts,
            clients=tuple(facts.clients[k] for k in there),
            losses=None if facts.losses is None else facts.losses[there],
            norms=facts.need_norms()[there],
            gram=facts.need_gram()[np.ix_(there, there)],
        )
        found = self.judge_with(moving, needs, state)
        losses = facts.losses
        if losses is not None and found.facts.losses is not None:
            losses = losses.copy()
            losses[there] = found.facts.losses
        mixing = None
        if found.mixing is not None:
            mixing = np.eye(facts.count)
            mixing[np.ix_(there, there)] = found.mixing
        bounded = {int(there[k]): reason for k, reason in found.bounded.items()}
        return Verdict(replace(facts, losses=losses), mixing=mixing, bounded=bounded, state=found.state)

    def _opposing(self, cosines: Matrix, along: list[float]) -> list[int]:
        """Who opposes the others, who agree: the sum of theirs is at least as long as `least`."""
        least = self.agreement * sqrt(len(along) - 1)
        far = [k for k, one in enumerate(along) if one < -self.cosine * least]
        if not far:
            return []
        total = float(cosines.sum())
        others = [sqrt(max(total - 2.0 * along[k] - 1.0, 0.0)) for k in far]
        return [
            k
            for k, length in zip(far, others, strict=True)
            if length >= least
            and along[k] < -self.cosine * length
            and np.count_nonzero(cosines[k] < 0.0) >= self.opposed * (len(along) - 1)
        ]

    def learned(self, step: Step, state: Numbers) -> tuple[Numbers, dict[int, str]]:
        if not state:
            return state, {}
        rates = dict(zip(step.clients, step.rates.tolist(), strict=True))
        return {client: one | {"rate": rates.get(client, 0.0)} for client, one in state.items()}, {}

    def _bounded(self, facts: Facts, opposing: list[int]) -> Verdict:
        gram, norms, count = facts.need_gram(), facts.need_norms(), facts.count
        others = sorted(set(range(count)).difference(opposing))
        usual = median(norms[others].tolist())
        mean = np.zeros(count)
        mean[others] = np.minimum(1.0, LONGEST * usual / norms[others]) / len(others)
        step = gram @ mean
        squared = float(mean @ step)
        if squared <= 0.0:
            return Verdict(facts)
        mixing, bounded = np.eye(count), {}
        losses = None if facts.losses is None else facts.losses.copy()
        for k in opposing:
            part = float(step[k]) / squared
            mixing[k, k] = min(1.0, self.length * usual / norms[k])
            mixing[k] += max(self.left - mixing[k, k] * part, 0.0) * mean
            if losses is not None:
                losses[k] = copysign(min(abs(losses[k]), abs(median(losses[others].tolist()))), losses[k])
            bounded[k] = f"opposes the others, {part:.2g} along their mean: counts as {self.left:g}"
        return Verdict(replace(facts, losses=losses), mixing=mixing, bounded=bounded)


def _looked_at(facts: Facts, opposing: list[int], state: Numbers) -> Numbers:
    """The state with this round's: who opposed, and whose loss went the way the last step had let expect."""
    found = dict(state)
    for k, client in enumerate(facts.clients):
        if k not in opposing and client not in found:
            continue
        one = found.pop(client, {"opposed": 0.0, "kept": 0.0, "loss": None, "rate": 0.0})
        opposed = (1.0 - RECENT) * one["opposed"] + RECENT * (k in opposing)
        loss = None if facts.losses is None else float(facts.losses[k])
        promise = 0.0
        if loss is not None and one["loss"] is not None:
            promise = -float(np.sign(loss - one["loss"]) * np.sign(one["rate"]))
        if opposed > FORGOTTEN:
            kept = (1.0 - RECENT) * one["kept"] + RECENT * promise
            found[client] = {"opposed": opposed, "kept": kept, "loss": loss, "rate": 0.0}
    return found
