"""AFL (Mohri et al. 2019): the model is trained for the worst mixture of the clients, found by gradient ascent."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from adafed.algebra.simplex import project_to_simplex
from adafed.registry import at_least
from adafed.server_rules.base import Answer, Facts, Need, Numbers, Rule, client_key, register

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
    """

    summary = "worst-case mixture of the clients, by projected ascent"
    grid = {"step": (0.01, 0.05, 0.1, 0.5, 1.0)}
    step: float = 0.1

    def __post_init__(self) -> None:
        at_least("rule.step", self.step, 0.0)

    @property
    def needs(self) -> frozenset[Need]:
        return frozenset({"losses"})

    def initial_state(self) -> Numbers:
        # `unseen` clients all hold the same share `each`: they only ever move together.
        return {"shares": {}, "unseen": 0, "each": 0.0}

    def answer(self, facts: Facts, state: Numbers) -> Answer:
        shares, unseen, each = _welcome(facts, state)
        mixture = np.array([shares[client] for client in facts.clients])
        total = mixture.sum()
        coefficients = mixture / total if total > 0 else np.full(facts.count, 1.0 / facts.count)

        with np.errstate(over="ignore"):  # a gain that overflows is a vertex of the simplex all the same
            gains = np.clip(self.step * facts.need_losses(), -LARGEST_GAIN, LARGEST_GAIN)
        gain = dict(zip(facts.clients, gains, strict=True))
        known = sorted(shares, key=client_key)
        ascended = np.array([shares[client] + gain.get(client, 0.0) for client in known] + [each] * unseen)
        projected = project_to_simplex(ascended)
        rest = float(projected[-1]) if unseen else 0.0
        next_shares = {client: float(value) for client, value in zip(known, projected, strict=False)}
        return Answer(coefficients, {"shares": next_shares, "unseen": unseen, "each": rest})


def _welcome(facts: Facts, state: Numbers) -> tuple[dict[str, float], int, float]:
    """Shares in which every client of the cohort has an entry of its own; all shares and the unseen sum to 1."""
    shares: dict[str, float] = dict(state["shares"])
    unseen, each = int(state["unseen"]), float(state["each"])
    known = len(shares) + unseen
    new = sorted((client for client in facts.clients if client not in shares), key=client_key)
    size = max(facts.federation or 0, known, len(shares) + len(new))
    if size > known:  # the federation grew, or this is the first round: newcomers get 1/size each
        kept = known / size
        shares = {client: share * kept for client, share in shares.items()}
        each = (each * kept * unseen + (size - known) / size) / (unseen + size - known)
        unseen += size - known
    for client in new:
        shares[client] = each
        unseen -= 1
    return shares, unseen, each
