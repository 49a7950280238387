"""BatchNorm's statistics, which are averaged beside the rule: no direction, but what the clients saw.

Every floating buffer of a module is among them, also one that nobody changes: a mask of -inf is no fault of a client.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from adafed.rounds.replies import Reply
from adafed.server.state_dicts import usable
from adafed.server_rules.guards import Guard
from adafed.server_rules.guards.sizes import counted

BAD_STATISTICS = "BatchNorm statistics hold NaN or infinity"


def unusable(replies: Sequence[Reply], sent: torch.Tensor) -> dict[int, str]:
    """The places of the replies whose statistics are of no use, and why they are left out."""
    if not len(sent):
        return {}
    return {k: BAD_STATISTICS for k, reply in enumerate(replies) if not usable(reply.statistics, sent)}


def averaged(replies: Sequence[Reply], sent: torch.Tensor, guards: Sequence[Guard] = ()) -> torch.Tensor | None:
    """Of these clients, by sample count as guards let it count; as the parameters of FedAvg. What was sent out and is
    not finite stays as it is."""
    if not replies or not len(replies[0].statistics):
        return None
    weights = np.array(counted([reply.samples for reply in replies], guards), dtype=np.float64)
    own = np.stack([reply.statistics.numpy() for reply in replies])
    with np.errstate(invalid="ignore"):
        mean = torch.from_numpy((weights / weights.sum()) @ own).to(replies[0].statistics.dtype)
    return torch.where(sent.isfinite(), mean, sent.to(mean.dtype))
