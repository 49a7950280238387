"""The model, the data and plain PyTorch training: nothing here knows of federated learning."""

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import cross_entropy

Data = tuple[torch.Tensor, torch.Tensor]


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))


def digits(client: int, clients: int) -> tuple[Data, Data]:
    """One client's training and test samples: four in five dealt out by digit, so that clients see different digits."""
    inputs, targets = load_digits(return_X_y=True)
    everyone = np.random.default_rng(0).permutation(len(targets))
    sorted_, mixed = np.split(everyone, [len(targets) * 4 // 5])
    sorted_ = sorted_[targets[sorted_].argsort(kind="stable")]
    mine = np.concatenate([np.array_split(part, clients)[client] for part in (sorted_, mixed)])
    x, y = torch.tensor(inputs[mine] / 16, dtype=torch.float32), torch.tensor(targets[mine])
    test = torch.arange(len(y)) % 4 == 0
    return (x[~test], y[~test]), (x[test], y[test])


def train(model: nn.Module, data: Data, lr: float) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    for inputs, targets in zip(data[0].split(32), data[1].split(32), strict=True):
        optimizer.zero_grad()
        cross_entropy(model(inputs), targets).backward()
        optimizer.step()


def measure(model: nn.Module, data: Data) -> tuple[float, float]:
    """Mean loss and accuracy."""
    outputs = model(data[0])
    return cross_entropy(outputs, data[1]).item(), (outputs.argmax(1) == data[1]).float().mean().item()
