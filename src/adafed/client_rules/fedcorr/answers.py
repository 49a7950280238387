"""What FedCorr asks of a client: how its own model answers its samples, and how the global model does."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from adafed.client_rules.fedcorr.dimension import local_dimensions
from adafed.training.flat_module import FlatModule
from adafed.training.local import EVALUATION_BATCH, Predicted, Samples, Suspicion
from adafed.training.local import answers as model_answers


@torch.no_grad()
def probabilities(model: FlatModule, inputs: torch.Tensor) -> torch.Tensor:
    """The model's answers as it stands, samples x classes."""
    model.module.eval()
    pieces = torch.split(inputs, EVALUATION_BATCH)
    return torch.cat([F.softmax(model_answers(model, piece), dim=-1) for piece in pieces])


def suspicion(model: FlatModule, data: Samples, neighbours: int) -> Suspicion:
    """The mean LID of the answers, and each sample's loss; the losses take probabilities where logits belong, as the
    authors' code does, which bounds them."""
    answers = probabilities(model, data.inputs)
    losses = F.cross_entropy(answers, data.targets, reduction="none")
    return Suspicion(float(local_dimensions(answers, neighbours).mean()), losses.double().tolist())


def predicted(model: FlatModule, client: int, data: Samples) -> Predicted:
    confidences, answers = probabilities(model, data.inputs).max(dim=-1)
    return Predicted(client, answers.tolist(), confidences.double().tolist(), data.targets.tolist())
