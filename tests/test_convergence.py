"""The paper's three convergence cases under their own rate schedules, and where the affine hull stalls.

The losses are quadratics 1/2 (theta - c_k)^T A_k (theta - c_k) + offset: convex, smooth, and with a Pareto set that can
be written down. They run through the simulator itself, as a model whose cross-entropy is the quadratic.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from adafed.config.configuration import Config, config_from
from adafed.config.merging import merged
from adafed.data.base import ClientData, Normalisation, Split
from adafed.engines.local.simulate import Simulation
from adafed.rounds.records import RoundRecord

HULLS = ("affine", "simplex")


class Quadratics(nn.Module):
    """A sample is (A's diagonal, c, offset, noise); its loss is the quadratic plus noise . theta.

    Two logits (0, z) cost log(1 + e^z) in class 0, which is the value wanted for z = log(e^value - 1).
    """

    def __init__(self, start: list[float]) -> None:
        super().__init__()
        self.theta = nn.Parameter(torch.tensor(start))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        size = len(self.theta)
        scale, centre, offset, noise = x[:, :size], x[:, size : 2 * size], x[:, 2 * size], x[:, 2 * size + 1 :]
        value = (scale * (self.theta - centre).square()).sum(dim=1) / 2 + offset + noise @ self.theta
        return torch.stack([torch.zeros_like(value), value + torch.log(-torch.expm1(-value))], dim=1)


def two_dimensions() -> nn.Module:
    return Quadratics([1.0, 1.0])


def four_dimensions() -> nn.Module:
    return Quadratics([2.0, -1.5, 1.0, 0.5])


def in_conflict() -> nn.Module:
    """Amid the clients' minima, off them in the one direction in which they agree."""
    return Quadratics([0.3, 0.3, 0.3, 1.0])


class Federation:
    """One quadratic a client. `noise` gives the samples gradients that differ from the client's, with mean zero."""

    name, classes, checksum, normalisation = "quadratics", 2, "0" * 64, Normalisation()

    def __init__(
        self, scales: list[list[float]], centres: list[list[float]], offset: float, *, noise: float = 0.0
    ) -> None:
        self.scales, self.centres, self.offset, self.noise = scales, centres, offset, noise
        self.ids = tuple(str(k) for k in range(len(scales)))
        self.input_shape = (3 * len(scales[0]) + 1,)
        self.train_sizes = np.full(len(scales), 8)

    def client(self, index: int) -> ClientData:
        drawn = np.random.default_rng(index).standard_normal((4, len(self.scales[0])))
        noise = self.noise * np.concatenate([drawn, -drawn])
        fixed = np.array([*self.scales[index], *self.centres[index], self.offset])
        inputs = np.concatenate([np.tile(fixed, (8, 1)), noise], axis=1).astype(np.float32)
        part = Split(inputs, np.zeros(8, dtype=np.int64))
        return ClientData(part, Split(inputs[:0], part.targets[:0]), Split(inputs[:1], part.targets[:1]))


def experiment(model: str, hull: str, **changes: Any) -> Config:
    base = {
        "model": {"name": f"{__name__}:{model}"},
        "rule": {"name": "adafed", "gamma": 1.0, "hull": hull, "scale": "min"},
        "local": {"batch_size": "full", "lr": 0.01},
        "split": {"validation": 0.0},
        "evaluation": {"every": 10**6},
        "run": {"workers": 0},
    }
    return config_from(merged(base, changes))


def ran(
    config: Config, federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> tuple[list[RoundRecord], list[torch.Tensor]]:
    """The records, and theta after every round."""
    import sys
    from types import ModuleType

    if __name__ not in sys.modules:
        here = ModuleType(__name__)
        here.__dict__.update(globals())
        monkeypatch.setitem(sys.modules, __name__, here)
    records, places = [], []
    with Simulation(config, federation=federation) as simulation:
        for record in simulation.rounds():
            records.append(record)
            places.append(simulation.state.parameters.clone())
    return records, places


SCALES = [[1.0, 2.0, 1.0, 0.5], [2.0, 1.0, 0.5, 1.0], [0.5, 1.0, 2.0, 1.0]]
CENTRES = [[1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0]]
LARGEST = 2.0  # L
LOCAL = 0.05  # eta: updates of one GD step are eta times the gradients


def to_the_pareto_set(theta: torch.Tensor) -> float:
    """The distance to {argmin of sum a_k f_k : a in the simplex}, over a grid of a."""
    scales, centres = np.array(SCALES), np.array(CENTRES)
    ticks = np.linspace(0, 1, 101)
    first, second = np.meshgrid(ticks, ticks)
    inside = first + second <= 1
    weights = np.stack([first[inside], second[inside], 1 - first[inside] - second[inside]], axis=1)
    minima = (weights @ (scales * centres)) / (weights @ scales)
    return float(np.linalg.norm(minima - theta.numpy(), axis=1).min())


@pytest.mark.parametrize("hull", HULLS)
@pytest.mark.parametrize("gamma", [0.0, 1.0, 5.0])
@pytest.mark.parametrize("share", [0.2, 0.9])
def test_below_theorem_2s_rate_every_loss_falls(
    hull: str, gamma: float, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """e = 1, full batch. With w divided by its minimum the bound is 2/L on eta_t eta."""
    config = experiment(
        "four_dimensions", hull, rounds=60, rule={"gamma": gamma}, local={"lr": LOCAL},
        server={"rate": share * 2 / LARGEST / LOCAL},
    )  # fmt: skip
    records, _ = ran(config, Federation(SCALES, CENTRES, 1.0), monkeypatch)
    # Once the steps are small, what the losses lose drowns in float32's rounding of them.
    moving = [record for record in records if (record.norm or 0) > 0.03 * (records[0].norm or 0)]
    assert len(moving) >= 3
    for record in moving:
        assert record.rho == 1.0
        assert record.mean_decrease is not None
        assert record.mean_decrease > 0
        assert all(p.descent is not None and p.descent > 0 for p in record.participants)


@pytest.mark.parametrize("hull", HULLS)
def test_above_theorem_2s_rate_some_loss_rises(hull: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """So the test above can fail."""
    config = experiment("four_dimensions", hull, rounds=15, local={"lr": LOCAL}, server={"rate": 4.5 / LARGEST / LOCAL})
    records, _ = ran(config, Federation(SCALES, CENTRES, 1.0), monkeypatch)
    assert any(record.rho is not None and record.rho < 1.0 for record in records)


def smallest_so_far(records: list[RoundRecord], eta: list[float]) -> list[float]:
    """min over the rounds so far of ||d_t|| / eta: what the theorems bound."""
    lengths = [(record.norm or 0.0) / rate for record, rate in zip(records, eta, strict=True)]
    return np.minimum.accumulate(lengths).tolist()


@pytest.mark.parametrize("hull", HULLS)
def test_case_1_one_step_of_sgd(hull: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """eta_t = 1/t, eta_t eta <= 1/(2L), and samples whose gradients differ from their client's."""
    config = experiment(
        "four_dimensions", hull, rounds=250, local={"batch_size": 4, "lr": LOCAL, "epochs": 1},
        server={"rate": 1 / (2 * LARGEST) / LOCAL, "schedule": {"name": "1/t", "after": 20.0}},
    )  # fmt: skip
    federation = Federation(SCALES, CENTRES, 1.0, noise=0.1)
    monkeypatch.setattr("adafed.training.local.LocalTraining.steps", lambda self, samples: 1)  # e = 1: a single batch
    records, places = ran(config, federation, monkeypatch)
    assert all(p.steps == 1 for record in records for p in record.participants)
    found = smallest_so_far(records, [LOCAL] * 250)
    assert found[-1] < 0.1 * found[0]
    if hull == "simplex":
        assert to_the_pareto_set(places[-1]) < 0.2 * to_the_pareto_set(places[0])
    else:  # d_t vanishes, and theta is nowhere near the Pareto set
        assert to_the_pareto_set(places[-1]) > 0.2


@pytest.mark.parametrize("hull", HULLS)
def test_case_2_several_steps_of_gd(hull: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """e = 5; both rates go to zero, eta_t with a diverging sum."""
    config = experiment(
        "four_dimensions", hull, rounds=120, local={"epochs": 5, "lr": LOCAL, "lr_decay": 0.99},
        server={"rate": 1 / (2 * LARGEST) / LOCAL / 5, "schedule": {"name": "1/sqrt(t)", "after": 30.0}},
    )  # fmt: skip
    records, places = ran(config, Federation(SCALES, CENTRES, 1.0), monkeypatch)
    found = smallest_so_far(records, [config.local.rate(record.round) for record in records])
    assert found[-1] < 0.05 * found[0]
    assert found[-1] < found[5] < found[0]
    if hull == "simplex":
        assert to_the_pareto_set(places[-1]) < 0.1 * to_the_pareto_set(places[0])


@pytest.mark.parametrize(
    ("start", "hull", "arrives"),
    [("four_dimensions", "simplex", True), ("four_dimensions", "affine", False),
     ("in_conflict", "simplex", True), ("in_conflict", "affine", True)],
)  # fmt: skip
def test_case_3_one_step_of_gd(start: str, hull: str, arrives: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """sum eta_t diverges, sum eta_t^2 does not: the distance to the Pareto set is what the theorem bounds.

    Where the clients' gradients conflict both hulls get there. From afar they agree; the affine point then has negative
    coefficients, and stops where the gradients become dependent.
    """
    config = experiment(
        start, hull, rounds=300, local={"lr": LOCAL},
        server={"rate": 1 / LARGEST / LOCAL, "schedule": {"name": "1/t", "after": 30.0}},
    )  # fmt: skip
    records, places = ran(config, Federation(SCALES, CENTRES, 1.0), monkeypatch)
    first, last = to_the_pareto_set(places[0]), to_the_pareto_set(places[-1])
    if arrives:
        assert last < 0.03
        assert last < 0.1 * first
    else:
        assert (records[-1].norm or 0) < 0.01 * (records[0].norm or 0)
        assert last > 0.2


@pytest.mark.parametrize(("gamma", "stalls_at"), [(0.0, 1.0), (0.1, 0.986), (1.0, 0.807)])
def test_the_affine_hull_stalls_where_everyone_could_still_gain(
    gamma: float, stalls_at: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """f_1 = x^2/2 + y^2/2 + 1 and f_2 = x^2 + y^2/2 + 1 have one minimiser, 0. From (1, 1) the affine point goes to
    (x, 0) with x > 0, where the gradients are parallel and its hull holds 0; the simplex point goes on to (0, 0)."""
    federation = Federation([[1.0, 1.0], [2.0, 1.0]], [[0.0, 0.0], [0.0, 0.0]], 1.0)
    ends: dict[str, torch.Tensor] = {}
    for hull in HULLS:
        config = experiment("two_dimensions", hull, rounds=150, rule={"gamma": gamma}, local={"lr": 0.1},
                            server={"rate": 1.0})  # fmt: skip
        _, places = ran(config, federation, monkeypatch)
        ends[hull] = places[-1] if hull == "simplex" else places[60]
    assert ends["affine"].tolist() == pytest.approx([stalls_at, 0.0], abs=0.01)
    assert ends["simplex"].tolist() == pytest.approx([0.0, 0.0], abs=1e-3)
