"""A client's reply, the same from every engine."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import torch

from adafed.client_rules.base import Told

# The names of a reply's numbers, here and on the wire.
LOSS, AFTER, RUNNING, HELD_OUT = "loss", "loss-after", "loss-running", "loss-validation"
ACCURACY, STEPS = "accuracy", "steps"
LOSSES = {"before": LOSS, "after": AFTER, "running": RUNNING, "validation": HELD_OUT}


NOTHING: Mapping[str, Any] = MappingProxyType({})


class Reply(NamedTuple):
    """What one client sent that can be used: its update g_k, its BatchNorm statistics (empty where there are none), its
    numbers by name, and what its rules tell and send, by rule. `node` is where it came from, where there are nodes."""

    client: int
    samples: int
    update: torch.Tensor
    statistics: torch.Tensor
    numbers: Mapping[str, float]
    told: Mapping[str, Told] = NOTHING
    vectors: Mapping[str, torch.Tensor] = NOTHING  # "rule.name"
    node: int = 0

    def number(self, key: str) -> float | None:
        return self.numbers.get(key)

    @property
    def steps(self) -> int | None:
        steps = self.number(STEPS)
        return int(steps) if steps is not None and 0 <= steps < 2**53 else None
