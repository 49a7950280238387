"""What a round and an evaluation leave behind: the records of this package, and metrics as Flower logs them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flwr.app import MetricRecord

from adafed.engines.flower.replies import ACCURACY, AFTER, LOSS, RUNNING, Reply, Screened
from adafed.rounds.records import Evaluation, Participant, RoundRecord
from adafed.server.aggregate import Aggregate

NameOf = Callable[[int], str]


def participants(found: Screened, outcome: Aggregate | None, name_of: NameOf) -> tuple[Participant, ...]:
    """Everybody who was asked, in the order of ids, with what came of it."""
    members = {client: Participant(name_of(client), dropped=why) for client, why in found.refused.items()}
    for k, reply in enumerate(found.replies):
        dropped = outcome.diagnostics.dropped.get(name_of(reply.client)) if outcome else None
        members[reply.client] = Participant(
            client=name_of(reply.client),
            samples=reply.samples,
            steps=reply.steps,
            before=reply.number(LOSS),
            after=reply.number(AFTER),
            running=reply.number(RUNNING),
            accuracy=reply.number(ACCURACY),
            coefficient=float(outcome.coefficients[k]) if outcome else None,
            descent=float(outcome.diagnostics.rates[k]) if outcome and not dropped else None,
            dropped=dropped,
        )
    return tuple(members[client] for client in sorted(members))


def recorded(
    round: int, local_lr: float, server_rate: float, members: tuple[Participant, ...], outcome: Aggregate | None,
    skipped: str | None,
) -> RoundRecord:  # fmt: skip
    found = outcome.diagnostics if outcome else None
    return RoundRecord(
        round=round,
        local_lr=local_lr,
        server_rate=server_rate,
        participants=members,
        norm=found.norm if found else None,
        mean_norm=found.mean_norm if found else None,
        condition=found.condition if found else None,
        negative=found.negative if found else None,
        skipped=skipped,
        notes=found.notes if found else {},
    )


def diagnostics(replies: list[Reply], outcome: Aggregate, refused: int) -> MetricRecord:
    """The round in numbers; lists are in the order of `client-ids`."""
    found = outcome.diagnostics
    metrics: dict[str, Any] = {
        "clients": len(replies) - len(found.dropped),
        "left-out": refused + len(found.dropped),
        "norm": found.norm,
        "mean-norm": found.mean_norm,
        "negative": found.negative,
        "client-ids": [reply.client for reply in replies],
        "coefficients": [float(one) for one in outcome.coefficients],
        "rates": [float(one) for one in found.rates],
    }
    if found.condition is not None:
        metrics["condition"] = float(found.condition)
    losses = [reply.number(LOSS) for reply in replies]
    known = [loss for loss in losses if loss is not None]
    if len(known) == len(losses):
        metrics |= {"losses": known, "mean-loss": sum(known) / len(known), "worst-loss": max(known)}
    return MetricRecord(metrics)


def fairness_metrics(evaluation: Evaluation) -> MetricRecord:
    """Clients one by one, and how evenly they are served."""
    scored = [score for _, score in evaluation.scores if score.accuracy is not None]
    fairness = evaluation.fairness
    metrics: dict[str, Any] = {
        "client-ids": [score.client for score in scored],
        "accuracies": [float(score.accuracy or 0.0) for score in scored],
        "mean": fairness.mean,
        "std": fairness.std,
        "worst-10": fairness.worst_10,
        "best-10": fairness.best_10,
        "angle": fairness.angle,
    }
    return MetricRecord(metrics)
