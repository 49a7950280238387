"""Figure 1 (a) with real data: the Pareto front of two clients, and the ways of FedAvg, MGDA and AdaFed to it.

One client has digits as they were scanned, the other, which has a quarter as many, holds them upside down. A linear
classifier with a little weight decay cannot serve both; its loss is convex, so that the minimisers of all weighted sums
of the two losses are the whole front.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure

from adafed.data.embedded import digits
from adafed.engines.station import one_thread
from adafed.report.figures import Panel
from adafed.report.figures.style import COLUMN, Vector, look
from adafed.server.aggregate import aggregate
from adafed.server_rules import rule

ROUNDS, LR, DECAY = 1000, 1.0, 1e-3
SAMPLES = (800, 200)
RULES: dict[str, tuple[str, dict[str, Any]]] = {
    "FedAvg": ("fedavg", {}),
    "MGDA": ("fedmgda+", {"epsilon": 1.0}),
    "AdaFed, simplex": ("adafed", {"gamma": 1.0, "hull": "simplex"}),
    "AdaFed": ("adafed", {"gamma": 1.0, "hull": "affine"}),
}
Losses = Callable[[torch.Tensor], list[torch.Tensor]]


def draw(_: Sequence[Panel]) -> Figure:
    with one_thread():  # the matrices are small: more threads would only wait for each other
        losses = two_clients()
        front = pareto_front(losses)
        ways = {name: descend(losses, which, options) for name, (which, options) in RULES.items()}
    figure = Figure(figsize=(COLUMN + 0.8, 3.2), layout="constrained")
    axes = figure.subplots()
    unreachable = np.concatenate([[[0, 9]], [[front[0, 0], 9]], front, [[9, front[-1, 1]], [9, 0], [0, 0]]])
    axes.fill(*unreachable.T, color="0.93", zorder=0)
    axes.plot(front[:, 0], front[:, 1], color="0.5", linewidth=3, zorder=1, label="Pareto front")
    looks = look(list(RULES))
    for name, way in ways.items():
        style = looks[name]
        axes.plot(way[:, 0], way[:, 1], color=style["color"], linestyle=style["linestyle"], linewidth=0.9)
        around = "simplex" in name  # it ends where AdaFed does, and is drawn around it
        how: dict[str, Any] = (
            {"markersize": 11, "markerfacecolor": "none"} if around else {"markersize": 6, "markeredgecolor": "white"}
        )
        axes.plot(*way[-1], style["marker"], color=style["color"], linestyle="none", zorder=6,
                  label=f"{name}: {way[-1, 0]:.2f}, {way[-1, 1]:.2f}", **how)  # fmt: skip
    axes.axline((0, 0), slope=1, color="0.6", linewidth=0.6, linestyle=":")
    shown = front[(front[:, 0] < 2.3) & (front[:, 1] < 2.3)]
    axes.set_xlim(0, 2.4)
    axes.set_ylim(0, 2.4)
    axes.annotate(
        "unreachable", tuple(shown[len(shown) // 2]), xytext=(-34, -30), textcoords="offset points", color="0.4"
    )
    axes.set_xlabel(rf"$f_1$: client 1, {SAMPLES[0]} digits upright")
    axes.set_ylabel(rf"$f_2$: client 2, {SAMPLES[1]} upside down")
    axes.legend(loc="lower right", bbox_to_anchor=(1.0, 0.13), title="end points $f_1$, $f_2$", title_fontsize=7)
    return figure


def two_clients() -> Losses:
    """The two losses as functions of the parameters."""
    dataset = digits()
    order = np.random.default_rng(0).permutation(len(dataset))[: sum(SAMPLES)]
    inputs = torch.from_numpy(np.asarray(dataset.inputs)[order].reshape(len(order), -1).astype(np.float64))
    inputs = inputs / inputs.max()
    targets = torch.from_numpy(dataset.targets[order])
    pieces = []
    for start, count, turned in ((0, SAMPLES[0], False), (SAMPLES[0], SAMPLES[1], True)):
        x = inputs[start : start + count]
        pieces.append((x.flip(1) if turned else x, targets[start : start + count]))

    def losses(theta: torch.Tensor) -> list[torch.Tensor]:
        weights = theta.view(dataset.classes, -1)
        decay = 0.5 * DECAY * theta.square().sum()
        return [torch.nn.functional.cross_entropy(x @ weights[:, :-1].T + weights[:, -1], y) + decay for x, y in pieces]

    return losses


def pareto_front(losses: Losses, points: int = 31) -> Vector:
    """The losses at the minimisers of (1 - s) f_1 + s f_2, for s between 0 and 1."""
    found = []
    theta = torch.zeros(10 * 65, dtype=torch.float64, requires_grad=True)
    shares = 1 / (1 + np.exp(-np.linspace(-7, 7, points)))
    for share in shares:
        optimiser = torch.optim.LBFGS([theta], max_iter=100, tolerance_grad=1e-9, line_search_fn="strong_wolfe")

        def closure(share: float = float(share), optimiser: torch.optim.LBFGS = optimiser) -> torch.Tensor:
            optimiser.zero_grad()
            first, second = losses(theta)
            total = (1 - share) * first + share * second
            torch.autograd.backward(total)
            return total

        optimiser.step(closure)  # type: ignore[no-untyped-call]
        with torch.no_grad():
            found.append([float(loss) for loss in losses(theta)])
    return np.array(sorted(found))


def descend(losses: Losses, name: str, options: dict[str, Any]) -> Vector:
    """The losses after every round of gradient descent from zero, e = 1, with the rule's direction."""
    chosen = rule(name, **options)
    theta = torch.zeros(10 * 65, dtype=torch.float64)
    state, way = None, []
    for t in range(1, ROUNDS + 1):
        theta.requires_grad_(True)
        values = losses(theta)
        rows = torch.stack([LR * torch.autograd.grad(value, theta, retain_graph=True)[0] for value in values])
        way.append([value.item() for value in values])
        theta = theta.detach()
        outcome = aggregate(chosen, rows, losses=way[-1], sizes=list(SAMPLES), round=t, local_lr=LR, state=state)
        rate = 2.0 / (1.0 + t / 20) if name == "fedmgda+" else 1.0  # unit steps have to shrink to converge
        theta = theta - rate * outcome.direction.to(torch.float64)
        state = outcome.state
    return np.array(way)
