"""The table of measures: what each computes from one evaluation and how it is printed. A new one is one entry here.

The user's own is named `module:attribute` wherever a measure can be named.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real

import numpy.typing as npt

from adafed.errors import AdafedError
from adafed.imported import attribute
from adafed.metrics import formulas
from adafed.metrics.formulas import Vector, checked, checked_accuracies, checked_sizes

CLIENT = "client:"  # the measure that is one client's accuracy is called this and its id


@dataclass(frozen=True)
class Evaluated:
    """One evaluation as a formula sees it: a number for each client, in one order. None: not known."""

    accuracies: Vector
    sizes: Vector | None = None  # test samples
    losses: Vector | None = None
    clients: tuple[str, ...] = ()  # their ids
    rho: float | None = None  # of the round before the evaluation

    @classmethod
    def of(
        cls, accuracies: npt.ArrayLike, sizes: npt.ArrayLike | None = None, losses: npt.ArrayLike | None = None
    ) -> Evaluated:
        """Checked, and copies that no formula can change."""
        a = checked_accuracies(accuracies)
        n = None if sizes is None else _fixed(checked_sizes(sizes, len(a)))
        return cls(_fixed(a), n, None if losses is None else _fixed(checked("losses", losses, clients=len(a))))


def _fixed(vector: Vector) -> Vector:
    copy = vector.copy()
    copy.setflags(write=False)
    return copy


@dataclass(frozen=True)
class Metric:
    """A measure and how it is printed. `direction` is 1 where larger is better, -1 where smaller is, 0 where neither.

    The formula of a `percent` measure gives a share. What is `kept` goes into the results files of every study.
    """

    formula: Callable[[Evaluated], float | None]
    label: str
    direction: int = 0
    latex: str | None = None
    digits: int = 2
    percent: bool = False
    kept: bool = False

    def __post_init__(self) -> None:
        if not callable(self.formula):
            raise AdafedError(f"the formula of metric {self.label!r} is {self.formula!r}; it must be a function")
        if self.direction not in (-1, 0, 1):
            raise AdafedError(f"the direction of metric {self.label!r} is {self.direction!r}; it must be 1, -1 or 0")
        if not isinstance(self.digits, int) or self.digits < 0:
            raise AdafedError(f"the digits of metric {self.label!r} are {self.digits!r}; they must be 0 or more")


def _if_known(formula: Callable[..., float | None], *given: Vector | None) -> float | None:
    return None if any(one is None for one in given) else formula(*given)


# In the order in which they are listed.
METRICS: dict[str, Metric] = {
    "mean": Metric(lambda e: float(e.accuracies.mean()), "mean %", 1, "$\\bar{a}$", percent=True, kept=True),
    "std": Metric(lambda e: formulas.standard_deviation(e.accuracies), "σ_a", -1, "$\\sigma_a$",
                  percent=True, kept=True),
    "floor": Metric(lambda e: _if_known(formulas.sampling_floor, e.accuracies, e.sizes), "chance", 0, "chance",
                    percent=True, kept=True),
    "excess": Metric(lambda e: _if_known(formulas.sampling_excess, e.accuracies, e.sizes), "σ_a left", -1,
                     "$\\sigma_a$ left", percent=True, kept=True),
    "worst_5": Metric(lambda e: formulas.worst(e.accuracies, 5), "worst 5%", 1, "Worst 5\\%", percent=True, kept=True),
    "worst_10": Metric(lambda e: formulas.worst(e.accuracies, 10), "worst 10%", 1, "Worst 10\\%",
                       percent=True, kept=True),
    "best_5": Metric(lambda e: formulas.best(e.accuracies, 5), "best 5%", 1, "Best 5\\%", percent=True, kept=True),
    "best_10": Metric(lambda e: formulas.best(e.accuracies, 10), "best 10%", 1, "Best 10\\%", percent=True, kept=True),
    "angle": Metric(lambda e: formulas.angle(e.accuracies), "angle °", -1, "Angle ($^{\\circ}$)"),
    "kl": Metric(lambda e: formulas.divergence(e.accuracies), "KL(a‖u)", -1, "KL ($a\\|u$)", digits=4),
    "jain": Metric(lambda e: formulas.jain(e.accuracies), "Jain", 1, digits=4),
    "gini": Metric(lambda e: formulas.gini(e.accuracies), "Gini", -1, digits=4),
    "loss_std": Metric(lambda e: _if_known(formulas.standard_deviation, e.losses), "loss σ", -1, digits=3),
    "loss_range": Metric(lambda e: _if_known(formulas.spread, e.losses), "loss range", -1, digits=3),
    "rho": Metric(lambda e: e.rho, "ρ %", 1, "$\\rho_t$", percent=True, kept=True),
}  # fmt: skip
USUAL = ("mean", "std", "floor", "excess", "worst_10", "best_10", "rho")


def metric(key: str, where: str = "columns") -> Metric:
    """The measure that `key` names: one of the table, `client:ID`, or the user's own. `where` is for the message."""
    if key in METRICS:
        return METRICS[key]
    if key.startswith(CLIENT):
        client = key.removeprefix(CLIENT)
        return Metric(lambda e: _accuracy(e, client), client, 1, percent=True)
    if not is_own(key):
        known = ", ".join(METRICS)
        raise AdafedError(f"{where} names {key!r}; there are {known}, {CLIENT}ID and your own as module:attribute")
    found = _imported(key, where)
    if isinstance(found, Metric):
        return found
    if not callable(found):
        raise AdafedError(f"{where} = {key!r} is {found!r}; it must be a function of an evaluation, or a Metric")
    return Metric(found, own_label(key))


def is_own(key: str) -> bool:
    """Whether it has the form of the user's own, `module:attribute`."""
    return key not in METRICS and ":" in key and not key.startswith(CLIENT)


def own_label(key: str) -> str:
    """What the user's own is called where it does not say."""
    return key.partition(":")[2]


def value(key: str, evaluated: Evaluated) -> float | None:
    """As tables have it: a share as percent. A formula that fails is told by its name."""
    chosen = metric(key)
    try:
        found: object = chosen.formula(evaluated)
        number = float(found) if isinstance(found, Real) and not isinstance(found, bool) else math.nan
    except Exception as error:
        raise AdafedError(f"the metric {key} raised {_line(error)}") from error
    if found is None:
        return None
    number = 100.0 * number if chosen.percent else number
    if not math.isfinite(number):
        raise AdafedError(f"the metric {key} returned {_line(found)}; it must be a finite number, or None if unknown")
    return number


def _line(found: object) -> str:
    return " ".join(repr(found).split())


def _accuracy(evaluated: Evaluated, client: str) -> float | None:
    known = client in evaluated.clients
    return float(evaluated.accuracies[evaluated.clients.index(client)]) if known else None


def _imported(spec: str, where: str) -> object:

    found: object = attribute(spec, where)
    return found
