"""What is known of a round when it is over: the values that `simulate` yields and the run directory keeps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from adafed.metrics import Evaluated, Fairness, fairness_of, improvement


class Scores(NamedTuple):
    """A model on one client's samples; no samples, no scores."""

    client: int
    samples: int
    loss: float | None
    accuracy: float | None


class Participant(NamedTuple):
    """One client's part in a round. `stepped` is its training loss after the server's step; `descent` is g_k . d, how
    fast its loss falls along the direction."""

    client: str
    samples: int | None = None
    steps: int | None = None
    before: float | None = None
    after: float | None = None
    running: float | None = None
    accuracy: float | None = None
    stepped: float | None = None
    coefficient: float | None = None
    descent: float | None = None
    dropped: str | None = None


@dataclass(frozen=True)
class Evaluation:
    """One model (the global one, or everyone's personal one) on one part of every client's data."""

    part: str
    personal: bool
    scores: tuple[tuple[str, Scores], ...]

    @property
    def fairness(self) -> Fairness:
        return fairness_of(self.evaluated())

    def evaluated(self, rho: float | None = None) -> Evaluated:
        """What measures are computed from: the numbers of the clients that have samples in this part."""
        scored = [(client, score) for client, score in self.scores if score.accuracy is not None]
        losses = [score.loss for _, score in scored]
        finite = all(loss is not None and abs(loss) < float("inf") for loss in losses)
        found = Evaluated.of(
            [score.accuracy or 0.0 for _, score in scored],
            [score.samples for _, score in scored],
            [loss or 0.0 for loss in losses] if finite else None,
        )
        return replace(found, clients=tuple(client for client, _ in scored), rho=rho)


@dataclass(frozen=True)
class RoundRecord:
    """A finished round. `local_lr` and `server_rate` are the steps of the clients and of the server in it."""

    round: int
    local_lr: float
    server_rate: float
    participants: tuple[Participant, ...]
    norm: float | None = None
    mean_norm: float | None = None
    condition: float | None = None
    negative: int | None = None
    rho: float | None = None
    mean_decrease: float | None = None
    skipped: str | None = None
    notes: dict[str, Any] = field(default_factory=dict)
    evaluations: tuple[Evaluation, ...] = ()
    seconds: dict[str, float] = field(default_factory=dict)

    def evaluation(self, part: str = "test", personal: bool | None = None) -> Evaluation | None:
        """The one on `part`; of the personal models where there are any, unless told otherwise."""
        found = [one for one in self.evaluations if one.part == part]
        if personal is not None:
            found = [one for one in found if one.personal == personal]
        return max(found, key=lambda one: one.personal) if found else None


def improved(record: RoundRecord, losses: Mapping[str, float]) -> RoundRecord:
    """The record with its cohort's training losses after the step, and rho_t from them."""
    members = tuple(
        one if one.before is None or one.client not in losses else one._replace(stepped=losses[one.client])
        for one in record.participants
    )
    both = [(one.before, one.stepped) for one in members if one.before is not None and one.stepped is not None]
    if not both or not np.isfinite(both).all():
        return replace(record, participants=members)
    better = improvement([before for before, _ in both], [after for _, after in both])
    return replace(record, participants=members, rho=better.rho, mean_decrease=better.mean_decrease)
