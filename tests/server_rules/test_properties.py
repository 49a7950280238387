"""AdaFed on updates of any rank, conditioning and size, in both hulls and both types: properties, by random search."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

import adafed

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Case:
    updates: torch.Tensor
    losses: Array
    gamma: float
    scale: str

    def run(self, hull: str) -> adafed.Aggregate:
        rule = adafed.rule("adafed", gamma=self.gamma, hull=hull, scale=self.scale)
        return adafed.aggregate(rule, self.updates, losses=self.losses)


@st.composite
def cases(draw: st.DrawFn, full_rank: bool = False) -> Case:
    generator = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    count = draw(st.integers(1, 12))
    rank = count if full_rank else draw(st.integers(1, count))
    length = draw(st.integers(max(rank, 2), 80))
    left = np.linalg.qr(generator.normal(size=(count, count)))[0][:, :rank]
    right = np.linalg.qr(generator.normal(size=(length, length)))[0][:rank]
    values = 10.0 ** -(draw(st.floats(0, 6)) * np.linspace(0, 1, rank))
    updates = (left * values) @ right * 10.0 ** draw(st.integers(-15, 15))
    if draw(st.booleans()):
        updates *= 10.0 ** generator.uniform(-3, 3, (count, 1))
    dtype = draw(st.sampled_from([torch.float32, torch.float64]))
    losses = generator.uniform(0.05, 5.0, count)
    if draw(st.booleans()):
        losses[generator.integers(count)] = draw(st.sampled_from([0.0, 1e-12, 1e12]))
    gamma = draw(st.sampled_from([0.0, 0.1, 1.0, 5.0]))
    return Case(torch.from_numpy(updates).to(dtype), losses, gamma, draw(st.sampled_from(["mean", "min"])))


def rounding(case: Case, outcome: adafed.Aggregate) -> Array:
    """What a rate is known to: the unit roundoff of d's type, times the length of g_k, times that of d's terms.

    d is rounded to the updates' type after it was summed in float64, or in float32 where its terms are at most a
    hundred times as long as itself. Coefficients that cancel are large, so the conditioning is part of the bound.
    """
    exact = case.updates.double().numpy()
    lengths = np.linalg.norm(exact, axis=1)
    terms = float(np.abs(outcome.coefficients) @ lengths)
    single = case.updates.dtype == torch.float32
    unit = 64 * len(lengths) * (2.0**-53 * terms + (2.0**-24 * min(terms, 100 * outcome.diagnostics.norm) * single))
    return np.asarray(unit * lengths)


@given(cases())
def test_output_is_finite_and_the_simplex_hurts_nobody(case: Case) -> None:
    for hull in ("affine", "simplex"):
        outcome = case.run(hull)
        assert outcome.direction.isfinite().all()
        assert np.isfinite(outcome.coefficients).all()
        kept = ~np.isnan(outcome.diagnostics.rates)
        assert kept.sum() + len(outcome.diagnostics.dropped) == len(kept)
        if outcome.diagnostics.hull == "simplex":
            assert (outcome.coefficients >= 0).all()
            rates = case.updates.double().numpy() @ outcome.direction.double().numpy()
            assert (rates >= -rounding(case, outcome))[kept].all()
            assert (outcome.diagnostics.rates >= -rounding(case, outcome))[kept].all()


@given(cases(full_rank=True))
def test_rates_are_in_proportion_to_the_weights_up_to_the_conditioning(case: Case) -> None:
    outcome = case.run("affine")
    if outcome.diagnostics.hull != "affine":  # singular to working precision
        assert outcome.diagnostics.condition is not None
        assert outcome.diagnostics.condition > 1e11
        return
    kept = ~np.isnan(outcome.diagnostics.rates)
    losses = case.losses[kept]
    weights = (losses / losses.max()) ** case.gamma if losses.any() and case.gamma else np.ones(len(losses))
    if case.scale == "min" and case.gamma:
        weights = np.maximum(weights, 1e-12)
    direction = outcome.direction.double().numpy()
    # w . y = 1 before the scale was applied: so ||d||^2 = scale^2 / (w . M^-1 . w), and rate_k = w_k / (w . y) ||d||^2.
    total = float(weights @ outcome.coefficients[kept])
    rates = case.updates.double().numpy()[kept] @ direction
    expected = weights / total * float(direction @ direction)
    allowed = rounding(case, outcome)[kept]
    slack = 64 * len(weights) * 2.0**-53 * (outcome.diagnostics.condition or 1.0)
    if case.updates.dtype == torch.float32:
        slack = max(slack, 1e-3)
    assert (np.abs(rates - expected) <= allowed + slack * np.abs(expected)).all()


@given(cases())
def test_simplex_is_no_shorter_than_affine(case: Case) -> None:
    affine, simplex = case.run("affine"), case.run("simplex")
    slack = 1e-3 if case.updates.dtype == torch.float32 else 1e-6
    noise = 1e-6 * float(np.abs(affine.coefficients) @ case.updates.double().norm(dim=1).numpy())
    assert affine.diagnostics.norm <= simplex.diagnostics.norm * (1 + slack) + noise
