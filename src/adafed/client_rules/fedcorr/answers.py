"""What FedCorr asks of a client: how its own model answers its samples, and how the global model does."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F

from adafed.client_rules.base import Told
from adafed.client_rules.fedcorr.dimension import local_dimensions
from adafed.training.flat_module import FlatModule
from adafed.training.local import Samples
from adafed.training.measuring import EVALUATION_BATCH
from adafed.training.measuring import answers as model_answers


@torch.no_grad()
def probabilities(model: FlatModule, inputs: torch.Tensor) -> torch.Tensor:
    """The model's answers as it stands, samples x classes."""
    model.module.eval()
    pieces = torch.split(inputs, EVALUATION_BATCH)
    return torch.cat([F.softmax(model_answers(model, piece), dim=-1) for piece in pieces])


def suspicion(model: FlatModule, data: Samples, neighbours: int) -> Told:
    """The mean LID (`dimension`) of the answers, and each sample's loss (`losses`), which takes probabilities where
    logits belong, as the authors' code does: that bounds it. A client of one or two samples has no LID and tells
    nothing: among the others' it would stand out whatever its labels are."""
    answers = probabilities(model, data.inputs)
    losses = F.cross_entropy(answers, data.targets, reduction="none")
    dimension = float(local_dimensions(answers, neighbours).mean())
    if math.isnan(dimension):
        return {}
    return {"dimension": dimension, "losses": losses.double().tolist()}


def predicted(model: FlatModule, data: Samples) -> Told:
    """The model's `answers` on the samples, its `confidences` in them, and the `labels` these have now."""
    confidences, answers = probabilities(model, data.inputs).max(dim=-1)
    return {
        "answers": answers.tolist(),
        "confidences": confidences.double().tolist(),
        "labels": data.targets.tolist(),
    }
