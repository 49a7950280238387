"""A run's SQLite file read by columns: whole evaluations as arrays, tallies of every client, one number a round.

`Store.records` makes an object of every row, which is right for a round and slow for ten thousand clients.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from adafed.runs.store import Store

Vector = npt.NDArray[np.float64]
ROUND = ("round", "norm", "mean_norm", "condition", "negative", "rho", "mean_decrease", "skipped", "notes")


class Measured(NamedTuple):
    """One evaluation: the clients' ids and a number for each; not-a-number where a client has none."""

    round: int
    personal: bool
    clients: tuple[str, ...]
    samples: npt.NDArray[np.int64]
    losses: Vector
    accuracies: Vector


class Tally(NamedTuple):
    """One client over all rounds: how often it was drawn, its mean coefficient where it was used, how often dropped."""

    client: str
    drawn: int
    coefficient: float | None
    dropped: int
    samples: int | None


class Columns(Store):
    """Read only."""

    def __init__(self, path: Any) -> None:
        super().__init__(path, read_only=True)

    def measured(self, part: str = "test") -> Iterator[Measured]:
        """Every evaluation on `part`; of the personal models where there are any."""
        found = self._select("evaluations", ("DISTINCT round",), "WHERE part = ? ORDER BY round", part)
        for (number,) in found:
            columns = ("client", "samples", "loss", "accuracy")
            for personal in (1, 0):
                rest = "WHERE round = ? AND part = ? AND personal = ?"
                rows = self._select("evaluations", columns, rest, number, part, personal)
                if rows:
                    clients, samples, losses, accuracies = zip(*rows, strict=True)
                    yield Measured(
                        number, bool(personal), clients, np.array(samples, dtype=np.int64), _vector(losses),
                        _vector(accuracies),
                    )  # fmt: skip
                    break

    def rounds(self) -> list[dict[str, Any]]:
        """The rows of the rounds, without their participants."""
        rows = [dict(zip(ROUND, row, strict=True)) for row in self._select("rounds", ROUND, "ORDER BY round")]
        return [row | {"notes": self.noted(row["notes"])} for row in rows]

    def coefficients(self, round: int) -> Vector:
        """Of the clients that were used in a round."""
        rest = "WHERE round = ? AND dropped IS NULL AND coefficient IS NOT NULL"
        return _vector([one for (one,) in self._select("participants", ("coefficient",), rest, round)])

    def tallies(self) -> list[Tally]:
        columns = (
            "client", "count(*)", "avg(CASE WHEN dropped IS NULL THEN coefficient END)", "count(dropped)",
            "max(samples)",
        )  # fmt: skip
        return [Tally(*row) for row in self._select("participants", columns, "GROUP BY client")]

    def dropped(self) -> list[tuple[int, str, str]]:
        """Round, client and why, of every client that was left out of a round."""
        rest = "WHERE dropped IS NOT NULL ORDER BY round"
        rows = self._select("participants", ("round", "client", "dropped"), rest)
        return [(int(number), str(client), str(why)) for number, client, why in rows]


def _vector(values: Any) -> Vector:
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)
