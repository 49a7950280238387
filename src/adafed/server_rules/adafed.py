"""AdaFed (Hamidi and Yang 2024): every client's loss falls, and falls faster where it is larger."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from adafed.algebra.hulls import affine_point, simplex_point
from adafed.registry import at_least, one_of
from adafed.server_rules.base import Answer, Facts, Matrix, Need, Numbers, Rule, Vector, register

SMALLEST_SHARE = 1e-12  # scale="min" divides by the smallest w: a client with no loss left must not stop the others
LONGEST = 2.0  # scale="update" lengthens d at most so many times: d has to shrink where there is little left to gain
LARGEST_POWER = (
    60.0  # as printed, |f|^gamma is kept within e^-60 .. e^60 (1e26): float32 must hold what is divided by it
)


@register("adafed")
@dataclass(frozen=True)
class AdaFed(Rule):
    """The d of equations (5)-(14) in closed form: with w_k = |f_k|^gamma, g_k . d = w_k ||d||^2 for every client.

    The paper orthogonalises the updates and takes the shortest vector in their hull. That vector is the shortest one in
    the *affine* hull of the g_k / w_k, and follows from the K x K Gram matrix M alone: solve M y = w, divide by w . y.

    All losses zero counts as gamma = 0. A single client gets its own update, divided by its scaled w.

    Attributes:
        gamma: The power of the loss in w: 0 lets all losses fall at one rate, more favours the larger ones.
        scale: What w is divided by first, which multiplies d by the same number. Theorem 2 grants descent for all
            clients for eta_t < (2/L) min_k w_k, with L the smoothness constant of the losses whose gradients the g_k
            are.
            "mean": the safe rate is (2/L) min w / mean w. Equal losses take gamma = 0's step at any loss level, so a
            constant eta_t serves a whole training run; safety for the smallest loss is not built in.
            "update": as "mean", then d is lengthened to the mean of the updates, but at most doubled. Where updates of
            a few clients disagree by chance, eta_t then means what it means for FedAvg; where they cancel, d shrinks.
            The safe rate is that of "mean", halved at most.
            "min": the safe rate is the constant 2/L, all of Theorem 2; steps shrink by min w / mean w, which for large
            gamma and unequal losses nearly stops training.
            "paper": w as printed; the safe rate moves with the losses, and for a constant eta_t the step grows like
            loss^-gamma as the losses fall.
        hull: "affine": the paper's point; coefficients may be negative. Where the updates are dependent but some d has
            the property, the shortest such d; where none has it (the paper's point is then 0), the simplex point.
            "simplex": min ||sum y_k g_k||^2 over y >= 0, w . y = 1. The same point whenever the paper's coefficients
            are non-negative; otherwise g_k . d >= w_k ||d||^2 with equality on the support: no rate is ever negative,
            no other d of that length has a larger smallest g_k . d / w_k, and d = 0 only at Pareto-stationary points.
        ridge: Added to M's diagonal, relative to the diagonal's mean. It bends the rates away from w.
    """

    summary = "every loss falls, in proportion to its power gamma"
    source = "Hamidi and Yang 2024"
    presets = {"paper": {"gamma": 1.0, "hull": "affine", "scale": "paper", "ridge": 0.0}}
    grid = {"gamma": (0.0, 0.01, 0.1, 1.0, 5.0, 10.0)}
    gamma: float = 2.0
    scale: Literal["mean", "update", "min", "paper"] = "update"
    hull: Literal["affine", "simplex"] = "simplex"
    ridge: float = 0.0

    def __post_init__(self) -> None:
        at_least("rule.gamma", self.gamma, 0.0)
        at_least("rule.ridge", self.ridge, 0.0)
        one_of("rule.scale", self.scale, ("mean", "update", "min", "paper"))
        one_of("rule.hull", self.hull, ("affine", "simplex"))

    @property
    def everyone(self) -> bool:
        """The promise is for the clients it is shown. As printed it is shown the round's."""
        return self.scale != "paper"

    @property
    def needs(self) -> frozenset[Need]:
        return frozenset({"gram"} | ({"losses"} if self.gamma > 0 else set()))

    def answer(self, facts: Facts, state: Numbers) -> Answer:
        gram = facts.need_gram()
        if self.ridge:
            gram = gram + self.ridge * np.diag(gram).mean() * np.eye(facts.count)
        weights, divisor = self._weights(facts)
        coefficients, hull = None, "affine"
        if self.hull == "affine":
            coefficients = affine_point(gram, weights)
        if coefficients is None:
            coefficients, hull = simplex_point(gram, weights, facts.last), "simplex"
        notes = {"hull": hull}
        if hull != self.hull:
            notes["fallback"] = "the updates are dependent and no direction has AdaFed's rates: simplex point"
        coefficients = coefficients / divisor
        if self.scale == "update":
            coefficients = coefficients * _stretch(facts.need_gram(), coefficients)
        return Answer(coefficients, notes=notes)

    def _weights(self, facts: Facts) -> tuple[Vector, float]:
        """w relative to its largest entry (no overflow for any loss), and what that leaves to divide y by."""
        if self.gamma == 0:
            return np.ones(facts.count), 1.0
        losses = np.abs(facts.need_losses())
        if not losses.any():
            return np.ones(facts.count), 1.0
        largest = losses.max()
        # Losses far below the largest: the quotient underflows to 0, which is what its power would do as well.
        weights = (losses / largest) ** self.gamma
        if self.scale in ("mean", "update"):
            return weights, 1.0 / float(weights.mean())
        if self.scale == "min":
            weights = np.maximum(weights, SMALLEST_SHARE)
            return weights, 1.0 / float(weights.min())
        return weights, float(np.exp(np.clip(self.gamma * np.log(largest), -LARGEST_POWER, LARGEST_POWER)))


def _stretch(gram: Matrix, coefficients: Vector) -> float:
    """How many times as long as d the mean of the updates is: at least once, as d is the shortest of a set it is in."""
    length, wanted = float(coefficients @ gram @ coefficients), float(gram.mean())
    if wanted <= length:
        return 1.0
    return LONGEST if wanted >= LONGEST**2 * length else float(np.sqrt(wanted / length))
