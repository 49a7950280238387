"""How evenly one model serves K clients: measures of the clients' test accuracies and losses, in one table."""

from adafed.metrics.formulas import angle, best, divergence, gini, jain, sampling_floor, standard_deviation, worst
from adafed.metrics.measures import Fairness, Improvement, fairness, fairness_of, improvement
from adafed.metrics.table import CLIENT, METRICS, USUAL, Evaluated, Metric, is_own, metric, own_label, value

__all__ = [
    "CLIENT",
    "METRICS",
    "USUAL",
    "Evaluated",
    "Fairness",
    "Improvement",
    "Metric",
    "angle",
    "best",
    "divergence",
    "fairness",
    "fairness_of",
    "gini",
    "improvement",
    "is_own",
    "jain",
    "metric",
    "own_label",
    "sampling_floor",
    "standard_deviation",
    "value",
    "worst",
]
