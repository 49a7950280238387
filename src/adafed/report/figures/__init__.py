"""The paper's figures by name: which runs each needs and who draws it. Needs the extra `figures` (matplotlib)."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from adafed.errors import AdafedError
from adafed.registry import unknown_name


@dataclass(frozen=True)
class Source:
    """Runs of one experiment: of its table, or of a variant of it; `paper` is the variant in the paper's own length,
    and `profile` the only one that has its methods."""

    experiment: str
    title: str
    variant: str | None = None
    paper: str | None = None
    methods: tuple[str, ...] = ()
    profile: str | None = None


@dataclass(frozen=True)
class Panel:
    """What a figure draws from: for each method its run directories, one a seed."""

    title: str
    runs: dict[str, list[Path]]


@dataclass(frozen=True)
class Curves:
    """A panel of lines over the rounds: for each method the rounds and the values of each of its seeds."""

    title: str
    label: str  # of the values
    seeds: Mapping[str, Sequence[tuple[Sequence[float], Sequence[float]]]]


@dataclass(frozen=True)
class Dot:
    """A mean difference, and half its interval where there is one."""

    mean: float
    half: float | None


@dataclass(frozen=True)
class Line:
    """One method: the first measure is drawn filled, the second open."""

    method: str
    dots: tuple[Dot | None, ...]


@dataclass(frozen=True)
class Differences:
    """A panel."""

    title: str
    lines: tuple[Line, ...]


@dataclass(frozen=True)
class SweepLine:
    """One measure: for each value of a sweep, what every seed has."""

    label: str
    seeds: tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class Sweep:
    """A panel of measures over the values of an option."""

    title: str
    values: tuple[float, ...]
    lines: tuple[SweepLine, ...]


@dataclass(frozen=True)
class Figure:
    name: str
    what: str
    drawer: str  # module.function in this package: (panels) -> matplotlib's figure
    sources: tuple[Source, ...] = field(default=())

    def require(self) -> None:
        """That it can be drawn here is told before its runs, not after."""
        _loaded("style")
        _loaded(self.drawer.partition(".")[0])

    def draw(self, panels: Sequence[Panel]) -> Any:
        module, _, function = self.drawer.partition(".")
        return getattr(_loaded(module), function)(panels)

    def save(self, panels: Sequence[Panel], folder: Path) -> list[Path]:
        """As PNG, SVG and PDF."""
        style = _loaded("style")
        with style.publication():
            return list(style.save(self.draw(panels), folder / self.name))


_CIFAR = (
    Source("cifar10-1", "CIFAR-10, set-up 1"),
    Source("cifar100-1", "CIFAR-100, set-up 1"),
)
_LOSS = tuple(
    Source(one.experiment, one.title, variant="loss", methods=("AdaFed", "AdaFed as printed")) for one in _CIFAR
)
_NORM = tuple(Source(one.experiment, one.title, variant="norm") for one in _CIFAR)
_CURVES = (Source("cifar10-1", "CIFAR-10, set-up 1", paper="curves"), _CIFAR[1])

_WITH_AND_WITHOUT = ("FedAvg", "FedFV", "AdaFed, no memory", "AdaFed, memory")

FIGURES: dict[str, Figure] = {
    figure.name: figure
    for figure in (
        Figure("figure-hull", "two gradients, their hull and AdaFed's point (figure 1 b, c)", "hulls.draw"),
        Figure("figure-pareto", "Pareto front of two clients and where methods end (figure 1 a)", "pareto.draw"),
        Figure("figure-rho", "share of clients whose loss did not rise (figure rho)", "curves.rho", _CIFAR),
        Figure("figure-loss", "loss of a low-loss and a high-loss client (figure loss)", "curves.losses", _LOSS),
        Figure("figure-norm", "length of d_t in the theorems' three cases (figure conv)", "curves.norms", _NORM),
        Figure("figure-accuracy", "mean accuracy by round (figures acc, acc2)", "curves.accuracy", _CURVES),
        Figure(
            "figure-histogram",
            "accuracies of FEMNIST's clients (figure L)",
            "histogram.draw",
            (Source("femnist-original", "FEMNIST-original", variant="histogram"),),
        ),
        Figure(
            "figure-memory",
            "mean and worst 5 % by round, with and without a memory of the federation, which the paper has not",
            "curves.worst_and_mean",
            (Source("cifar10-1", "CIFAR-10, set-up 1", methods=_WITH_AND_WITHOUT, profile="federation"),),
        ),
        Figure(
            "figure-late",
            "a client that joins late, which the paper promises in words",
            "late.draw",
            (Source("figure-late", "Digits"),),
        ),
    )
}


def save_curves(panels: Sequence[Curves], stem: Path) -> list[Path]:
    """Lines over the rounds as PNG, SVG and PDF: the mean over the seeds, shaded from the lowest to the highest."""
    style, curves = _loaded("style"), _loaded("curves")
    with style.publication():
        return list(style.save(curves.by_round(panels), stem))


def figure(name: str) -> Figure:
    if name not in FIGURES:
        raise unknown_name("figure", name, FIGURES)
    return FIGURES[name]


def _loaded(module: str) -> Any:
    try:
        return importlib.import_module(f"adafed.report.figures.{module}")
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith("matplotlib"):
            raise
        raise AdafedError("figures need matplotlib: pip install 'adafed[figures]'") from None
