"""The next-character model for Shakespeare: an embedding, one or two LSTM layers, a dense layer."""

from __future__ import annotations

import torch
from torch import nn

from adafed.errors import AdafedError
from adafed.models.base import register, whole


class CharacterLSTM(nn.Module):
    """Characters in, shape (batch, length); the scores of the next one out, read off the last step."""

    def __init__(self, vocabulary: int, embedding: int, hidden: int, layers: int, classes: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, embedding)
        self.lstm = nn.LSTM(embedding, hidden, num_layers=layers, batch_first=True)
        self.fc = nn.Linear(hidden, classes)

    def forward(self, characters: torch.Tensor) -> torch.Tensor:
        steps, _ = self.lstm(self.embedding(characters))
        scores: torch.Tensor = self.fc(steps[:, -1])
        return scores


@register("lstm")
def lstm(
    input_shape: tuple[int, ...],
    classes: int,
    *,
    embedding: int = 8,
    hidden: int = 256,
    layers: int = 2,
    vocabulary: int | None = None,
) -> nn.Module:
    """The paper's setups have two LSTM layers (S1) and one (S2). The vocabulary is the classes unless given."""
    if len(input_shape) != 1:
        raise AdafedError(f"model.name = 'lstm' takes text of shape (length,), but the data have {input_shape}.")
    words = classes if vocabulary is None else whole("vocabulary", vocabulary)
    return CharacterLSTM(
        words, whole("embedding", embedding), whole("hidden", hidden), whole("layers", layers), classes
    )
