"""TERM (Li et al. 2021): client-level tilted empirical risk, an exponential of the loss sets the weight."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from adafed.registry import at_least, one_of
from adafed.server_rules.base import Answer, Facts, Need, Numbers, Rule, register


@register("term")
@dataclass(frozen=True)
class TERM(Rule):
    """Minimises (1/t) log mean_k exp(t F_k): y_k = exp(t F_k) / sum exp(t F). t = 0 is the plain average, t < 0 robust.

    `weighted=True` multiplies by the sample counts. `variant="reference"` is the published code's step: the normaliser
    is a running mean over rounds (each relative to its own largest loss), and the result is averaged once more over the
    cohort, so in steady state the step is K times smaller than the softmax one.

    Attributes:
        t: The tilt: above 0 large losses weigh more, below 0 less.
        weighted: Multiply by the sample counts.
        variant: "softmax", or "reference" for the step of the published code.
    """

    summary = "softmax of the losses, tilted by t"
    source = "Li et al. 2021"
    grid = {"t": (0.1, 0.5, 1.0, 2.0, 5.0)}
    t: float = 0.5
    weighted: bool = False
    variant: Literal["softmax", "reference"] = "softmax"

    def __post_init__(self) -> None:
        at_least("rule.t", self.t, -np.finfo(float).max)
        one_of("rule.variant", self.variant, ("softmax", "reference"))

    @property
    def needs(self) -> frozenset[Need]:
        return frozenset({"losses"} | ({"sizes"} if self.weighted else set()))

    def initial_state(self) -> Numbers:
        return {"normaliser": 0.0}

    def answer(self, facts: Facts, state: Numbers) -> Answer:
        losses = facts.need_losses()
        if self.t == 0:  # the limit, the average: 0 times a difference that overflows would be no number
            losses = np.zeros(facts.count)
        with np.errstate(over="ignore"):  # the difference first, and by halves: t F and F_j - F_k may overflow
            tilted = self.t * (2.0 * (0.5 * losses - 0.5 * (losses.max() if self.t > 0 else losses.min())))
        weights = np.exp(tilted)
        if self.weighted:
            weights *= facts.need_sizes() / facts.need_sizes().max()
        if self.variant == "softmax":
            return Answer(weights / weights.sum(), state)
        normaliser = 0.5 * state["normaliser"] + 0.5 * float(weights.mean())
        return Answer(weights / (normaliser * facts.count**2), {"normaliser": normaliser})
