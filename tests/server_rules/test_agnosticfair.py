"""AgnosticFair's two published ends, AFL and FedAvg, and what lies between."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import adafed


def cohort(round_: int, clients: list[str]) -> dict[str, object]:
    random = np.random.default_rng(round_)
    return {
        "updates": torch.from_numpy(random.normal(size=(len(clients), 4))),
        "losses": random.uniform(0.1, 3.0, len(clients)),
        "sizes": random.integers(5, 50, len(clients)),
        "clients": clients,
        "round": round_,
        "federation": 6,
    }


COHORTS = [["0", "1", "2"], ["1", "3"], ["0", "1", "2", "3", "4", "5"], ["4"], ["2", "5", "0"]]


@pytest.mark.parametrize("step", [0.05, 1.0])
def test_the_clients_indicators_as_kernels_are_afl(step: float) -> None:
    one, other = None, None
    for round_, clients in enumerate(COHORTS, start=1):
        call = cohort(round_, clients)
        kernels = adafed.aggregate(adafed.rule("agnosticfair", over="clients", step=step), **call, state=one)  # type: ignore[arg-type]
        afl = adafed.aggregate(adafed.rule("afl", step=step), **call, state=other)  # type: ignore[arg-type]
        np.testing.assert_allclose(kernels.coefficients, afl.coefficients, rtol=1e-12, atol=1e-15)
        assert kernels.state.numbers["shares"] == pytest.approx(afl.state.numbers["shares"], rel=1e-12, abs=1e-15)
        one, other = kernels.state, afl.state


def test_one_constant_kernel_is_fedavg() -> None:
    state = None
    for round_, clients in enumerate(COHORTS, start=1):
        call = cohort(round_, clients)
        kernel = adafed.aggregate(adafed.rule("agnosticfair", kernels=1, step=5.0), **call, state=state)  # type: ignore[arg-type]
        fedavg = adafed.aggregate(adafed.rule("fedavg"), **call)  # type: ignore[arg-type]
        np.testing.assert_allclose(kernel.coefficients, fedavg.coefficients, rtol=1e-12)
        state = kernel.state


def run(state: adafed.RuleState | None = None, **options: float) -> adafed.Aggregate:
    rule = adafed.rule("agnosticfair", kernels=2, **options)
    updates = torch.ones(3, 2, dtype=torch.float64)
    return adafed.aggregate(rule, updates, losses=[1.0, 2.0, 3.0], sizes=[1, 1, 2], state=state)


def test_two_kernels_by_hand() -> None:
    """Bumps at the smallest and at the largest loss; places are 0, 1/2 and 1, the shares p = 1/4, 1/4, 1/2."""
    middle, far = np.exp(-0.5 * (0.5 / 0.4) ** 2), np.exp(-0.5 * (1 / 0.4) ** 2)
    low, high = np.array([1.0, middle, 2 * far]), np.array([far, middle, 2.0])
    low, high = low / low.sum(), high / high.sum()
    first = run(width=0.4, step=0.05)
    np.testing.assert_allclose(first.coefficients, (low + high) / 2)
    gains = 0.05 * np.array([low @ [1, 2, 3], high @ [1, 2, 3]])
    alpha = 0.5 + gains - gains.mean()
    assert first.state.numbers["shares"] == pytest.approx({"0": alpha[0], "1": alpha[1]})
    second = run(first.state, width=0.4, step=0.05)
    np.testing.assert_allclose(second.coefficients, alpha[0] * low + alpha[1] * high)


def test_the_mixture_moves_to_the_largest_losses_and_stays_in_the_simplex() -> None:
    state, weights = None, []
    for _ in range(20):
        outcome = run(state, step=0.2)
        state = outcome.state
        weights.append(outcome.coefficients)
        assert outcome.coefficients.sum() == pytest.approx(1.0)
        assert (outcome.coefficients >= 0).all()
    assert weights[-1][2] > weights[0][2]
    assert state is not None
    assert state.numbers["shares"] == {"0": 0.0, "1": 1.0}


def test_equal_losses_give_fedavg() -> None:
    updates = torch.eye(3, dtype=torch.float64)
    outcome = adafed.aggregate(adafed.rule("agnosticfair"), updates, losses=[0.7] * 3, sizes=[1, 2, 5])
    np.testing.assert_allclose(outcome.coefficients, [1 / 8, 2 / 8, 5 / 8])


def test_a_mistake_is_told_in_a_sentence() -> None:
    with pytest.raises(adafed.AdafedError, match=r"^rule\.kernels is 0; it must be a finite number at least 1"):
        adafed.rule("agnosticfair", kernels=0)
    with pytest.raises(adafed.AdafedError, match=r"^rule\.width is 0\.0; it must be a finite number at least 1e-06"):
        adafed.rule("agnosticfair", width=0)


def test_bumps_too_narrow_for_any_loss_are_refused() -> None:
    with pytest.raises(adafed.AdafedError, match=r"^rule\.width is 1e-160; it must be a finite number at least 1e-06"):
        adafed.rule("agnosticfair", width=1e-160)
    narrow = adafed.rule("agnosticfair", width=1e-6)
    out = adafed.aggregate(narrow, torch.eye(3), losses=[0.0, 0.3, 1.0], sizes=[1, 1, 1])
    assert out.coefficients.sum() == pytest.approx(1.0)
