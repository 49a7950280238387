"""A kept study that the tests of kept files and of their tables read."""

from __future__ import annotations

from adafed.studies.kept import Kept, KeptRun


def run(method: str, seed: int, means: list[float], worst: float = 10.0) -> KeptRun:
    at = tuple(range(10, 10 * len(means) + 1, 10))
    values = {"mean": tuple(means), "worst_10": (worst,) * len(means)}
    return KeptRun(method, seed, at[-1], False, at, dict(values))


KEPT = Kept(
    "A study",
    ("mean", "worst_10"),
    (
        run("FedAvg", 0, [10, 20, 30, 40, 50, 50, 50, 50, 50, 60]),
        run("FedAvg", 1, [10, 20, 30, 40, 50, 50, 50, 50, 50, 50]),
        run("AdaFed", 0, [30, 40, 50, 60, 60, 60, 60, 60, 60, 64], 20.0),
        run("AdaFed", 1, [30, 40, 50, 60, 60, 60, 60, 60, 60, 56], 22.0),
    ),
    {"profile": "laptop"},
)
