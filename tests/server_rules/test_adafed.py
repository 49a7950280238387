"""AdaFed's mathematics: its rates, its invariances, its theorem on descent, and what it does with degenerate input."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import adafed
from adafed.server_rules.adafed import LONGEST

Array = np.ndarray[Any, Any]
SEEDS = pytest.mark.parametrize("seed", range(6))


def drawn(seed: int, count: int | None = None) -> tuple[torch.Tensor, Array]:
    generator = np.random.default_rng(seed)
    count = int(generator.integers(2, 10)) if count is None else count
    updates = generator.normal(size=(count, 60)) + generator.normal(size=60) * (seed % 3)
    return torch.from_numpy(updates), generator.uniform(0.2, 3.0, count)


def run(updates: torch.Tensor, losses: Any, **options: Any) -> adafed.Aggregate:
    """The paper's hull unless the other is asked for."""
    return adafed.aggregate(adafed.rule("adafed", **{"hull": "affine"} | options), updates, losses=losses)


def paper(updates: torch.Tensor, losses: Any, **options: Any) -> adafed.Aggregate:
    return run(updates, losses, preset="paper", **options)


def near(one: torch.Tensor, other: torch.Tensor, tolerance: float = 1e-10) -> bool:
    return bool((one - other).norm() <= tolerance * other.norm())


@SEEDS
@pytest.mark.parametrize("gamma", [0.0, 0.1, 1.0, 5.0])
def test_every_rate_is_in_proportion_to_its_weight(seed: int, gamma: float) -> None:
    updates, losses = drawn(seed)
    outcome = paper(updates, losses, gamma=gamma)
    direction = outcome.direction.numpy()
    np.testing.assert_allclose(updates.numpy() @ direction, losses**gamma * (direction @ direction), rtol=1e-8)
    np.testing.assert_allclose(outcome.diagnostics.rates, updates.numpy() @ direction, rtol=1e-8)
    assert outcome.coefficients @ losses**gamma == pytest.approx(1.0)


@SEEDS
def test_updates_and_weights_may_be_scaled(seed: int) -> None:
    updates, losses = drawn(seed)
    base = paper(updates, losses, gamma=2.0).direction
    assert near(paper(7.0 * updates, losses, gamma=2.0).direction, 7.0 * base)
    assert near(paper(updates, 3.0 * losses, gamma=2.0).direction, base / 9.0)
    for scale in ("mean", "min", "update"):  # none looks at the level of the losses
        scaled = run(updates, 3.0 * losses, gamma=2.0, scale=scale).direction
        assert near(scaled, run(updates, losses, gamma=2.0, scale=scale).direction)


@SEEDS
@pytest.mark.parametrize("hull", ["affine", "simplex"])
def test_scales_differ_by_the_stated_factor(seed: int, hull: str) -> None:
    updates, losses = drawn(seed)
    weights = losses**1.5
    base = run(updates, losses, gamma=1.5, hull=hull, scale="paper").direction
    assert near(run(updates, losses, gamma=1.5, hull=hull, scale="mean").direction, weights.mean() * base)
    assert near(run(updates, losses, gamma=1.5, hull=hull, scale="min").direction, weights.min() * base)


@SEEDS
@pytest.mark.parametrize("hull", ["affine", "simplex"])
def test_scale_update_is_the_same_way_as_long_as_the_mean_update(seed: int, hull: str) -> None:
    updates, losses = drawn(seed)
    base = run(updates, losses, gamma=1.5, hull=hull, scale="mean").direction
    found = run(updates, losses, gamma=1.5, hull=hull, scale="update").direction
    wanted = float(updates.mean(dim=0).norm() / base.norm())
    assert wanted >= 1
    assert near(found, min(wanted, LONGEST) * base)
    assert near(run(7.0 * updates, losses, gamma=1.5, hull=hull, scale="update").direction, 7.0 * found)


def test_scale_update_lengthens_at_most_so_many_times_and_lets_d_vanish() -> None:
    for apart, times in ((0.8, None), (1e-3, LONGEST)):
        updates = torch.tensor(
            [[3.0, apart], [-1.0, apart]], dtype=torch.float64
        )  # a mean of (1, apart), d of (0, apart)
        base, found = (run(updates, [1.0, 1.0], scale=scale).direction for scale in ("mean", "update"))
        assert near(base, torch.tensor([0.0, apart], dtype=torch.float64))
        assert near(found, (times or float(updates.mean(dim=0).norm()) / apart) * base)
    opposed = torch.tensor([[3.0, 0.0], [-1.0, 0.0]], dtype=torch.float64)
    assert float(run(opposed, [1.0, 1.0], scale="update").direction.norm()) < 1e-12


@SEEDS
def test_length_has_its_bounds(seed: int) -> None:
    updates, losses = drawn(seed)
    affine = paper(updates, losses, gamma=1.0)
    simplex = run(updates, losses, gamma=1.0, scale="paper", hull="simplex")
    assert affine.diagnostics.norm <= (updates.norm(dim=1).numpy() / losses).min() * (1 + 1e-12)
    assert affine.diagnostics.norm <= simplex.diagnostics.norm * (1 + 1e-12)
    assert (simplex.diagnostics.rates >= losses * simplex.diagnostics.norm**2 - 1e-12).all()
    if affine.diagnostics.negative == 0:
        assert near(affine.direction, simplex.direction)


def test_orthogonal_updates_of_one_length_are_averaged() -> None:
    updates = 3.0 * torch.eye(4, 9, dtype=torch.float64)
    assert near(run(updates, None, gamma=0.0).direction, updates.mean(dim=0))
    for hull in ("affine", "simplex"):  # equal losses take the same step at any level
        for level in (1e-3, 1.0, 50.0):
            assert near(run(updates, [level] * 4, gamma=5.0, hull=hull).direction, updates.mean(dim=0))


@pytest.mark.parametrize("hull", ["affine", "simplex"])
def test_single_client(hull: str) -> None:
    update = torch.tensor([[3.0, 4.0]], dtype=torch.float64)
    assert torch.equal(run(update, [2.0], gamma=5.0, hull=hull).direction, update[0])
    assert torch.equal(run(update, [2.0], gamma=5.0, hull=hull, scale="min").direction, update[0])
    assert near(run(update, [2.0], gamma=5.0, hull=hull, scale="paper").direction, update[0] / 32)


def test_no_loss_anywhere_counts_as_gamma_zero() -> None:
    updates, _ = drawn(3, 4)
    for scale in ("mean", "min", "paper", "update"):
        found = run(updates, np.zeros(4), gamma=2.0, scale=scale).direction
        assert near(found, run(updates, None, gamma=0.0, scale=scale).direction)


def test_client_without_loss_is_not_hurt() -> None:
    updates, losses = drawn(4, 4)
    losses[1] = 0.0
    outcome = run(updates, losses, gamma=1.0)
    assert abs(outcome.diagnostics.rates[1]) <= 1e-12 * float(updates[1].norm()) * outcome.diagnostics.norm
    assert (np.delete(outcome.diagnostics.rates, 1) > 0).all()
    safe = run(updates, losses, gamma=1.0, scale="min")  # floored, so that the others still move
    assert safe.diagnostics.norm > 0
    assert (safe.diagnostics.rates > -1e-15).all()


def test_duplicates_get_the_exact_direction_of_one() -> None:
    updates, losses = drawn(5, 4)
    copies = [0, 0, 1, 2, 3, 3, 3]
    outcome = paper(updates[copies], losses[copies], gamma=1.0)
    assert outcome.diagnostics.hull == "affine"
    assert "fallback" not in outcome.diagnostics.notes
    assert near(outcome.direction, paper(updates, losses, gamma=1.0).direction, 1e-9)


@pytest.mark.parametrize(
    "rows",
    [
        [[1.0, 2.0, 0.0], [1.5, 3.0, 0.0]],
        [[1.0, 2.0, 0.0], [1.5, 3.0, 0.0], [0.0, 0.0, 1.0]],
        [[1.0, 0.0], [1.0, 1.0], [2.0, 3.0]],
        [[2.0], [3.0], [0.5]],
    ],
    ids=["parallel", "parallel and another", "more clients than dimensions", "one dimension"],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_updates_without_a_common_direction_fall_back_to_the_simplex(rows: Any, dtype: torch.dtype) -> None:
    updates = torch.tensor(rows, dtype=dtype)
    losses = np.ones(len(rows))
    outcome = run(updates, losses, gamma=1.0)
    assert outcome.diagnostics.hull == "simplex"
    assert "dependent" in outcome.diagnostics.notes["fallback"]
    asked = run(updates, losses, gamma=1.0, hull="simplex")
    assert torch.equal(outcome.direction, asked.direction)
    assert "fallback" not in asked.diagnostics.notes
    assert (outcome.diagnostics.rates > 0).all()


@pytest.mark.parametrize("factor", [1.1, 1.5, 0.3])
def test_parallel_updates_in_float32_are_not_taken_for_independent(factor: float) -> None:
    """What rounding to float32 leaves between parallel updates is no direction to move in."""
    base = torch.randn(2, 5000, generator=torch.Generator().manual_seed(0))
    updates = torch.stack([base[0], factor * base[0], base[1]])
    outcome = run(updates, np.ones(3), gamma=1.0)
    assert outcome.diagnostics.hull == "simplex"
    assert outcome.diagnostics.norm > 0.1 * outcome.diagnostics.mean_norm


def test_hostile_clients_leave_everything_finite() -> None:
    updates, losses = drawn(6, 5)
    generator = torch.Generator().manual_seed(1)
    noise = 1e-3 * torch.randn(60, generator=generator, dtype=torch.float64)
    for hull in ("affine", "simplex"):
        for gamma in (1.0, 5.0):
            for update, loss in [
                (1.5 * updates[0] + noise, 1.0),
                (updates[0], 1.0),
                (1e-4 * updates[4], 1.0),
                (1e4 * updates[4], 1.0),
                (-updates[:4].mean(dim=0) + noise, 1.0),
                (updates[4], 1e4),
                (updates[4], 1e300),
                (updates[4], 0.0),
            ]:
                told = losses.copy()
                told[4] = loss
                outcome = run(torch.cat([updates[:4], update[None]]), told, gamma=gamma, hull=hull)
                assert outcome.direction.isfinite().all()
                lengths = updates.norm(dim=1).max().item()
                assert (outcome.diagnostics.rates >= -1e-11 * lengths * outcome.diagnostics.norm).all()


def test_ridge_bends_the_rates_but_keeps_the_norm_of_the_coefficients() -> None:
    updates, losses = drawn(7, 5)
    outcome = run(updates, losses, gamma=1.0, scale="paper", ridge=0.1)
    gram = (updates @ updates.T).numpy()
    bent = gram + 0.1 * np.diag(gram).mean() * np.eye(5)
    np.testing.assert_allclose(np.ptp(bent @ outcome.coefficients / losses), 0.0, atol=1e-12)
    assert outcome.coefficients @ losses == pytest.approx(1.0)


@pytest.mark.parametrize(("gamma", "q"), [(1.0, 0.0), (1.0, 1.0), (0.5, 1.0), (0.9, 2.0), (2.0, 0.5), (1.0, 5.0)])
@pytest.mark.parametrize("hull", ["affine", "simplex"])
def test_on_the_objectives_of_qffl(gamma: float, q: float, hull: str) -> None:
    """On F^(q+1) / (q+1), AdaFed(gamma) is AdaFed(gamma (q+1) - q) on F, up to scale."""
    updates, losses = drawn(8, 5)
    powered = torch.from_numpy(losses**q)[:, None] * updates
    one = run(powered, losses ** (q + 1) / (q + 1), gamma=gamma, hull=hull).direction
    other = run(updates, losses, gamma=gamma * (q + 1) - q, hull=hull).direction
    assert near(one / one.norm(), other / other.norm(), 1e-8)


class Quadratics:
    """f_k = offset_k + 1/2 (x - c_k) . A_k (x - c_k) with eigenvalues up to L: losses, gradients and L."""

    def __init__(self, seed: int, count: int = 4, length: int = 12) -> None:
        generator = np.random.default_rng(seed)
        self.centres = generator.normal(size=(count, length))
        bases = [np.linalg.qr(generator.normal(size=(length, length)))[0] for _ in range(count)]
        values = generator.uniform(0.1, 2.0, (count, length))
        self.matrices = np.stack([b @ np.diag(v) @ b.T for b, v in zip(bases, values, strict=True)])
        self.offsets = generator.uniform(0.0, 1.0, count)
        self.smoothness = float(values.max())
        self.start = generator.normal(size=length) * 2

    def losses(self, x: Array) -> Array:
        away = x - self.centres
        return np.asarray(self.offsets + 0.5 * np.einsum("ki,kij,kj->k", away, self.matrices, away))

    def gradients(self, x: Array) -> Array:
        return np.asarray(np.einsum("kij,kj->ki", self.matrices, x - self.centres))


@SEEDS
@pytest.mark.parametrize("gamma", [0.0, 1.0, 3.0])
@pytest.mark.parametrize("share", [0.05, 0.5, 0.99])
def test_theorem_2_every_loss_falls_inside_its_interval(seed: int, gamma: float, share: float) -> None:
    problem = Quadratics(seed)
    x = problem.start
    for _ in range(5):
        losses = problem.losses(x)
        weights = losses**gamma
        gradients = torch.from_numpy(problem.gradients(x))
        for hull in ("affine", "simplex"):
            for scale, rate in [
                ("min", 2 / problem.smoothness),
                ("mean", 2 / problem.smoothness * weights.min() / weights.mean()),
                ("paper", 2 / problem.smoothness * weights.min()),
            ]:
                direction = run(gradients, losses, gamma=gamma, scale=scale, hull=hull).direction.numpy()
                stepped = x - share * rate * direction
                assert (problem.losses(stepped) < losses).all()
        x = stepped


def test_theorem_2_fails_beyond_its_interval() -> None:
    """f_k = L/2 (x_k - 1)^2 summed over one axis each: past 2/L the loss with the smallest weight rises."""
    smoothness, losses = 2.0, np.array([4.0, 1.0])
    # Client k: L/2 ||x - c_k||^2 along its own axis, so the gradients are orthogonal and d . d = 1 / sum w^2/g^2.
    gradients = torch.tensor([[4.0, 0.0], [0.0, 2.0]], dtype=torch.float64)
    direction = run(gradients, losses, gamma=1.0, scale="min").direction
    square = float(direction @ direction)

    def change(rate: float, k: int) -> float:  # exact, and the same bound as in the theorem's proof
        return -rate * float(gradients[k] @ direction) + 0.5 * smoothness * rate**2 * square

    assert all(change(0.999 * 2 / smoothness, k) < 0 for k in (0, 1))
    assert change(1.001 * 2 / smoothness, 1) > 0
    assert change(1.001 * 2 / smoothness, 0) < 0


def test_affine_hull_stalls_where_the_simplex_does_not() -> None:
    """Two convex losses with a common minimiser: the paper's d is 0 along an axis on which both could fall.

    Once the updates have become parallel to rounding, the fallback to the simplex ends the stall.
    """

    def walked(hull: str, rounds: int) -> Array:
        x = np.array([1.0, 1.0])
        rule = adafed.rule("adafed", gamma=0.0, hull=hull, scale="mean")
        for _ in range(rounds):
            gradients = torch.from_numpy(np.stack([x, x * [2.0, 1.0]]))
            x = x - 0.1 * adafed.aggregate(rule, gradients).direction.numpy()
        return x

    np.testing.assert_allclose(walked("affine", 60), [1.0, 0.9**60], atol=1e-6)
    np.testing.assert_allclose(walked("simplex", 60), [0.9**60, 0.9**60], atol=1e-9)
    assert walked("affine", 300)[0] < 0.5


def test_at_the_end_of_theorem_2s_interval_a_loss_stays_though_d_is_not_zero() -> None:
    """f_k = ||x - c_k||^2, so L = 2: at eta_t = (2/L) min w the loss with the smallest weight is where it was.

    Theorem 2's closed interval keeps every loss from rising, but its equality "iff d = 0" needs the open one.
    """
    x, centres = np.zeros(2), np.array([[2.0, 0.0], [0.0, 1.0]])
    losses = ((x - centres) ** 2).sum(axis=1)
    direction = paper(torch.from_numpy(2 * (x - centres)), losses, gamma=1.0).direction.numpy()
    assert np.linalg.norm(direction) > 0.5

    def changes(share: float) -> Array:
        stepped = x - share * losses.min() * direction  # 2/L is 1
        return np.asarray(((stepped - centres) ** 2).sum(axis=1) - losses)

    assert (changes(0.0) == 0).all()
    assert (changes(0.999) < 0).all()
    assert changes(1.0)[0] < 0
    assert changes(1.0)[1] == pytest.approx(0.0, abs=1e-15)
    assert changes(1.001)[1] > 0


def test_d_vanishes_though_everyone_has_a_common_way_down() -> None:
    """Gradients that become parallel, of lengths 1 and 2: the affine hull of the two comes to hold 0, their convex hull
    stays at distance 1. So a short d says that the gradients are dependent, not that the point is Pareto-stationary."""
    for distance in (1e-1, 1e-2, 1e-3):
        updates = torch.tensor([[1.0, 0.0], [2.0, distance]], dtype=torch.float64)
        outcome = paper(updates, [1.0, 1.0], gamma=1.0)
        assert outcome.diagnostics.hull == "affine"
        assert outcome.coefficients[0] > 0 > outcome.coefficients[1]
        assert outcome.diagnostics.norm == pytest.approx(distance, rel=0.01)
        free = run(updates, [1.0, 1.0], gamma=1.0, scale="paper", hull="simplex")
        assert free.diagnostics.norm == pytest.approx(1.0)
        assert (free.diagnostics.rates >= 1.0).all()


def test_dependent_updates_may_have_no_direction_with_adafeds_rates() -> None:
    """g and 2 g with equal losses: g . d = 2 g . d holds for g . d = 0 only."""
    updates = torch.tensor([[1.0, 0.0, 0.0], [2.0, 0.0, 0.0], [0.0, 1.0, 0.0]], dtype=torch.float64)
    rates, *_ = np.linalg.lstsq(updates.numpy(), np.ones(3), rcond=None)
    assert np.abs(updates.numpy() @ rates - 1).max() > 0.1
    assert paper(updates, [1.0] * 3, gamma=1.0).diagnostics.hull == "simplex"


@SEEDS
def test_what_makes_all_rates_equal(seed: int) -> None:
    """gamma = 0 does. Dividing the updates by their length, or by its square, makes the rates go with them instead."""
    updates, _ = drawn(seed, 4)
    updates = updates * torch.tensor([[0.3], [1.0], [2.0], [5.0]])
    lengths = updates.norm(dim=1)
    equal = run(updates, None, gamma=0.0).direction
    np.testing.assert_allclose(updates @ equal / (updates[0] @ equal), np.ones(4), rtol=1e-9)
    for power in (1, 2):
        direction = run(updates / lengths[:, None] ** power, None, gamma=0.0).direction
        rates = updates @ direction
        np.testing.assert_allclose(rates / rates[0], (lengths / lengths[0]) ** power, rtol=1e-9)
        assert rates.max() > 5 * rates.min()


def test_the_bound_on_d_in_the_last_convergence_proof_fails() -> None:
    """||d||^2 <= l^2 / K needs every orthogonalised gradient to be no longer than l."""
    alike = torch.tensor([[1.0, 0.1], [1.0, -0.1]], dtype=torch.float64)  # gamma = 0: clients that agree
    assert paper(alike, None, gamma=0.0).diagnostics.norm ** 2 > 1.9 * float(alike.norm(dim=1).max()) ** 2 / 2
    apart = torch.eye(2, dtype=torch.float64)  # gamma > 0: small losses
    assert paper(apart, [0.01, 0.01], gamma=1.0).diagnostics.norm ** 2 > 1e3 * 1 / 2
