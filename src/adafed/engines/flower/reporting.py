"""What a round and an evaluation leave behind as metrics that Flower logs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flwr.app import MetricRecord

from adafed.rounds.records import Evaluation
from adafed.rounds.replies import LOSS, Reply
from adafed.server.aggregate import Aggregate


def diagnostics(replies: Sequence[Reply], outcome: Aggregate, refused: int) -> MetricRecord:
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
