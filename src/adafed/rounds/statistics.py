"""BatchNorm's statistics, which are averaged beside the rule: no direction, but what the clients saw."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from adafed.rounds.replies import Reply
from adafed.server_rules.guards import Guard
from adafed.server_rules.guards.sizes import counted

BAD_STATISTICS = "BatchNorm statistics hold NaN or infinity"


def unusable(replies: Sequence[Reply]) -> dict[int, str]:
    """The places of the replies whose statistics are not finite, and why they are left out."""
    bad = [k for k, reply in enumerate(replies) if not bool(reply.statistics.isfinite().all())]
    return dict.fromkeys(bad, BAD_STATISTICS)


def averaged(replies: Sequence[Reply], guards: Sequence[Guard] = ()) -> torch.Tensor | None:
    """Of these clients, by sample count as guards let it count; as the parameters of FedAvg."""
    if not replies or not len(replies[0].statistics):
        return None
    weights = np.array(counted([reply.samples for reply in replies], guards), dtype=np.float64)
    own = np.stack([reply.statistics.numpy() for reply in replies])
    return torch.from_numpy((weights / weights.sum()) @ own).to(replies[0].statistics.dtype)
