"""What a model answers on a client's samples."""

from __future__ import annotations

import math

import torch
from torch import nn

from adafed.client_rules.fedcorr.answers import predicted, probabilities, suspicion
from adafed.training.flat_module import FlatModule
from adafed.training.local import Samples


def sure() -> FlatModule:
    """Answers the larger of two inputs, the surer the more it is larger."""
    module = nn.Linear(2, 2, bias=False)
    with torch.no_grad():
        module.weight.copy_(torch.eye(2))
    return FlatModule(module, torch.device("cpu"))


def test_answers_confidences_and_the_labels_as_they_are() -> None:
    data = Samples(torch.tensor([[3.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 0]))
    found = predicted(sure(), data)
    assert found.keys() == {"answers", "confidences", "labels"}
    assert (found["answers"], found["labels"]) == ([0, 1], [0, 0])
    for given, wanted in zip(found["confidences"], (3.0, 1.0), strict=True):
        assert abs(given - 1 / (1 + math.exp(-wanted))) < 1e-6


def test_wrong_labels_have_the_larger_losses_and_these_are_bounded() -> None:
    inputs = 100 * torch.eye(2).repeat(10, 1)
    targets = torch.tensor([0, 1] * 10)
    targets[:4] = 1 - targets[:4]
    losses = suspicion(sure(), Samples(inputs, targets), 5)["losses"]
    assert min(losses[:4]) > max(losses[4:])
    assert max(losses) <= math.log(1 + math.e) + 1e-6  # probabilities in place of logits


def test_many_samples_are_answered_in_pieces() -> None:
    inputs = torch.randn(1200, 2, generator=torch.Generator().manual_seed(0))
    assert torch.allclose(probabilities(sure(), inputs), torch.softmax(inputs, dim=-1))
