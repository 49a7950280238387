"""AFL (Mohri et al. 2019): the model is trained for the worst mixture of the clients, found by gradient ascent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from adafed.algebra.simplex import project_to_simplex
from adafed.errors import AdafedError
from adafed.registry import at_least
from adafed.server_rules.base import MOST_CLIENTS, Answer, Facts, Need, Numbers, Rule, Vector, client_key, register

LARGEST_GAIN = 1e300


@register("afl")
@dataclass(frozen=True)
class AFL(Rule):
    """min over theta, max over lambda in the simplex of sum_k lambda_k F_k.

    Each round steps along sum lambda_k g_k, then lambda <- projection of (lambda + step * F) onto the simplex.
    The method is defined for full participation. Under partial participation lambda is kept for the whole federation;
    the cohort's entries, renormalised to sum 1, are the coefficients (uniform where all of them are 0), and only the
    cohort's entries get a gradient before the projection. lambda starts uniform over the federation, whose size is
    `federation` among the facts, or the number of clients seen so far. A newcomer who makes the federation grow to N
    clients enters with 1/N, taken from the others in proportion.

    Attributes:
        step: How far lambda ascends along the losses in a round (lambda_lr of the method).
    """

    summary = "worst-case mixture of the clients, by projected ascent"
    source = "Mohri et al. 2019"
    grid = {"step": (0.01, 0.05, 0.1, 0.5, 1.0)}
    step: float = 0.1

    def __post_init__(self) -> None:
        at_least("rule.step", self.step, 0.0)

    @property
    def needs(self) -> frozenset[Need]:
        return frozenset({"losses"})

    def initial_state(self) -> Numbers:
        return Shares({}, 0, 0.0).numbers()

    def answer(self, facts: Facts, state: Numbers) -> Answer:
        held = Shares.of(state).welcoming(facts.clients, facts.federation)
        return Answer(held.among(facts.clients), held.ascended(facts.clients, facts.need_losses(), self.step).numbers())


@dataclass(frozen=True)
class Shares:
    """lambda: the share that each name holds. The `unseen` hold `each`, since they only ever move together; all shares
    and theirs sum to 1."""

    held: dict[str, float]
    unseen: int
    each: float

    @classmethod
    def of(cls, state: Numbers) -> Shares:
        unseen = int(state["unseen"])
        if not 0 <= unseen <= MOST_CLIENTS:
            raise AdafedError(f"state says that {unseen} clients are unseen; pass the state of the last round, or none")
        return cls(dict(state["shares"]), unseen, float(state["each"]))

    def numbers(self) -> Numbers:
        return {"shares": self.held, "unseen": self.unseen, "each": self.each}

    def welcoming(self, names: Sequence[str], size: int | None) -> Shares:
        """Shares in which every one of these has an entry of its own, among at least `size`."""
        shares, unseen, each = self.held, self.unseen, self.each
        known = len(shares) + unseen
        new = sorted((name for name in names if name not in shares), key=client_key)
        size = max(size or 0, known, len(shares) + len(new))
        if size > known:  # the federation grew, or this is the first round: newcomers get 1/size each
            kept = known / size
            shares = {name: share * kept for name, share in shares.items()}
            each = (each * kept * unseen + (size - known) / size) / (unseen + size - known)
            unseen += size - known
        return Shares(shares | dict.fromkeys(new, each), unseen - len(new), each)

    def among(self, names: Sequence[str]) -> Vector:
        """Their shares, renormalised to sum 1; uniform where all of them are 0."""
        mixture = np.array([self.held[name] for name in names])
        total = mixture.sum()
        return mixture / total if total > 0 else np.full(len(names), 1.0 / len(names))

    def ascended(self, names: Sequence[str], losses: Vector, step: float) -> Shares:
        """After a step along these losses and the projection onto the simplex."""
        with np.errstate(over="ignore"):  # a gain that overflows is a vertex of the simplex all the same
            gains = np.clip(step * losses, -LARGEST_GAIN, LARGEST_GAIN)
        gain = dict(zip(names, gains, strict=True))
        known = sorted(self.held, key=client_key)
        ascended = np.array([self.held[name] + gain.get(name, 0.0) for name in known] + [self.each] * self.unseen)
        projected = project_to_simplex(ascended)
        rest = float(projected[-1]) if self.unseen else 0.0
        return Shares({name: float(value) for name, value in zip(known, projected, strict=False)}, self.unseen, rest)
