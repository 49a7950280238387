"""What clients minimise: each sample's loss, and its derivative written out."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F

Loss = Literal["cross-entropy", "double-softmax"]


def sample_losses(outputs: torch.Tensor, targets: torch.Tensor, loss: Loss) -> torch.Tensor:
    """`double-softmax` feeds probabilities where logits belong, as the code behind FedFV's public records does."""
    if loss == "double-softmax":
        outputs = F.softmax(outputs, dim=-1)
    return F.cross_entropy(outputs, targets, reduction="none")


def losses_and_errors(outputs: torch.Tensor, targets: torch.Tensor, loss: Loss) -> tuple[torch.Tensor, torch.Tensor]:
    """Each sample's loss, and its derivative by that sample's outputs. Any number of leading dimensions."""
    logits = F.softmax(outputs, dim=-1) if loss == "double-softmax" else outputs
    logarithms = F.log_softmax(logits, dim=-1)
    answer = targets.unsqueeze(-1)
    losses = -logarithms.gather(-1, answer).squeeze(-1)
    errors = logarithms.exp_().scatter_add_(-1, answer, torch.full_like(answer, -1, dtype=outputs.dtype))
    if loss == "double-softmax":  # through the inner softmax, whose derivative is diag(p) - p p'
        errors = logits * (errors - (logits * errors).sum(dim=-1, keepdim=True))
    return losses, errors
