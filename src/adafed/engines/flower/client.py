"""The client's side for an app of the user's own: a plain train function wrapped so that a round is one phase.

def load(context):                      what this node holds
    return NodeData(client=..., model=Net(), train=loader, test=loader, samples=len(dataset))

def train(model, data, config): ...     in place; `config` is what the server sent
def measure(model, data): ...           -> mean loss, accuracy

app = fair_client(load, train, measure)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sized
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from adafed.engines.flower.replies import CLIENT, SAMPLES
from adafed.engines.flower.trying import ACTION, models, numbered
from adafed.errors import AdafedError
from adafed.rounds.replies import ACCURACY, AFTER, LOSS


@dataclass(frozen=True)
class NodeData:
    """What a node holds: one client.

    Attributes:
        client: Its own id, a whole number that stays the client's.
        model: A module of the model's shape.
        train: Training data in any form that your train function takes.
        test: Test data likewise.
        samples: How many training samples there are.
        test_samples: How many test samples; may be left out where the test data are a loader, a data set, or tensors
            side by side.
    """

    client: int
    model: torch.nn.Module
    train: Any
    test: Any
    samples: int
    test_samples: int | None = None


Load = Callable[[Context], NodeData]
Train = Callable[[torch.nn.Module, Any, Mapping[str, Any]], object]
Measure = Callable[[torch.nn.Module, Any], tuple[float, float]]


def fair_client(load: Load, train: Train, measure: Measure) -> ClientApp:
    """A ClientApp that answers everything `FairStrategy` asks: who it is, a round of training, the training losses at
    models that a step may lead to, and an evaluation.

    The reply to a round holds the trained model and, of the training data, the loss and the accuracy of the received
    model and the loss of the trained one.

    Args:
        load: From Flower's context to what this node holds.
        train: `train(model, data, config)` in place; `config` is what the server sent.
        measure: `measure(model, data)` to mean loss and accuracy.

    Returns:
        The `app` that a Flower project names as its clientapp.
    """
    app = ClientApp()

    @app.query()
    def query(message: Message, context: Context) -> Message:
        mine = load(context)
        return reply(message, {"metrics": MetricRecord({CLIENT: [mine.client], SAMPLES: [mine.samples]})})

    @app.query(ACTION)
    def losses(message: Message, context: Context) -> Message:
        mine, told = load(context), {}
        for k, record in enumerate(models(message.content.array_records)):
            mine.model.load_state_dict(record.to_torch_state_dict())
            told[LOSS + numbered(k)] = _measured(measure, mine.model, mine.train)[0]
        return reply(message, {"metrics": MetricRecord({CLIENT: mine.client, **told})})

    @app.train()
    def one_round(message: Message, context: Context) -> Message:
        mine = received(message, context, load)
        loss, accuracy = _measured(measure, mine.model, mine.train)
        mine.model.train()
        train(mine.model, mine.train, message.content.config_records["config"])
        after, _ = _measured(measure, mine.model, mine.train)
        told: dict[str, Any] = {
            CLIENT: mine.client,
            SAMPLES: mine.samples,
            LOSS: loss,
            ACCURACY: accuracy,
            AFTER: after,
        }
        arrays = ArrayRecord(mine.model.state_dict())
        return reply(message, {"arrays": arrays, "metrics": MetricRecord(told)})

    @app.evaluate()
    def evaluation(message: Message, context: Context) -> Message:
        mine = received(message, context, load)
        loss, accuracy = _measured(measure, mine.model, mine.test)
        told: dict[str, Any] = {CLIENT: mine.client, SAMPLES: _count(mine), LOSS: loss, ACCURACY: accuracy}
        return reply(message, {"metrics": MetricRecord(told)})

    return app


def received(message: Message, context: Context, load: Load) -> NodeData:
    """What the node holds, with the server's model in it."""
    mine = load(context)
    mine.model.load_state_dict(message.content.array_records["arrays"].to_torch_state_dict())
    return mine


def reply(message: Message, content: dict[str, Any]) -> Message:
    return Message(RecordDict(content), reply_to=message)


def _count(mine: NodeData) -> int:
    """How many test samples there are."""
    if mine.test_samples is not None:
        return mine.test_samples
    data = getattr(mine.test, "dataset", mine.test)
    if isinstance(data, list | tuple) and data and all(isinstance(one, torch.Tensor | np.ndarray) for one in data):
        return len(data[0])
    if isinstance(data, Mapping) or not isinstance(data, Sized):
        raise AdafedError(f"test is {type(data).__name__}, whose samples cannot be counted; give test_samples as well")
    return len(data)


@torch.no_grad()
def _measured(measure: Measure, model: torch.nn.Module, data: Any) -> tuple[float, float]:
    model.eval()
    loss, accuracy = measure(model, data)
    return float(loss), float(accuracy)
