"""AgnosticFair (Du et al. 2021) without a sensitive attribute: the worst mixture of a few kernels over the clients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from adafed.registry import at_least, one_of
from adafed.server_rules.afl import Shares
from adafed.server_rules.base import Answer, Facts, Matrix, Need, Numbers, Rule, Vector, register


@register("agnosticfair")
@dataclass(frozen=True)
class AgnosticFair(Rule):
    """min over theta, max over alpha of sum_k y_k F_k, with y_k = sum_m alpha_m p_k K_m(k) / sum_j p_j K_m(j).

    AFL with few numbers to ascend instead of one for each client: alpha lies in the simplex, starts uniform, and takes
    AFL's projected step, in which the gain of kernel m is its mean loss. p_k = n_k / sum n.

    Its authors weigh single samples, by bumps over their features, and constrain the model's unfairness to a sensitive
    attribute. Here the server sees no sample and the data has no such attribute: kernels are over what it does see,
    and the constraint is left out.

    Attributes:
        over: "losses": `kernels` Gaussian bumps of deviation `width`, their centres spread evenly from the
            smallest loss of the cohort (0) to the largest (1); one kernel is constant, which is FedAvg.
            "clients": the clients' indicators, which is AFL.
        kernels: How many bumps.
        width: Their deviation, where the losses of the cohort span 0 to 1.
        step: How far alpha ascends in a round.
    """

    summary = "worst-case mixture of a few kernels over the losses"
    source = "Du et al. 2021"
    over: Literal["losses", "clients"] = "losses"
    kernels: int = 5
    width: float = 0.25
    step: float = 0.1

    def __post_init__(self) -> None:
        one_of("rule.over", self.over, ("losses", "clients"))
        at_least("rule.kernels", self.kernels, 1, most=10_000)
        at_least("rule.width", self.width, 1e-6)  # of bumps yet narrower none may reach any loss
        at_least("rule.step", self.step, 0.0)

    @property
    def needs(self) -> frozenset[Need]:
        return frozenset({"losses", "sizes"})

    def initial_state(self) -> Numbers:
        return Shares({}, 0, 0.0).numbers()

    def answer(self, facts: Facts, state: Numbers) -> Answer:
        losses = facts.need_losses()
        if self.over == "clients":
            names, size, logs = facts.clients, facts.federation, _indicators(facts.count)
        else:
            names, size, logs = tuple(str(m) for m in range(self.kernels)), self.kernels, self._bumps(losses)
        mixtures = _normalised(logs + np.log(facts.need_sizes()))
        alpha = Shares.of(state).welcoming(names, size)
        coefficients = alpha.among(names) @ mixtures
        return Answer(coefficients, alpha.ascended(names, mixtures @ losses, self.step).numbers())

    def _bumps(self, losses: Vector) -> Matrix:
        """The logarithms of the kernels, a row for each."""
        if self.kernels == 1:
            return np.zeros((1, len(losses)))
        halves = 0.5 * losses - 0.5 * losses.min()  # by halves, since a difference may overflow
        spread = float(halves.max())
        places = halves / spread if spread > 0 else halves
        centres = np.linspace(0.0, 1.0, self.kernels)
        with np.errstate(over="ignore"):
            logs: Matrix = -0.5 * ((places - centres[:, None]) / self.width) ** 2
        return logs


def _indicators(count: int) -> Matrix:
    return np.where(np.eye(count) > 0, 0.0, -np.inf)


def _normalised(logs: Matrix) -> Matrix:
    """Rows of logarithms as rows that sum to 1: by way of the largest, so that no row is all zeros."""
    shares: Matrix = np.exp(logs - logs.max(axis=1, keepdims=True))
    rows: Matrix = shares / shares.sum(axis=1, keepdims=True)
    return rows
