"""Clients in one batch learn what each would alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from adafed.training.flat_module import FlatModule
from adafed.training.local import Assignment, LocalTrainer, LocalTraining, Objective, Samples
from adafed.training.losses import Loss
from adafed.training.stacked import GROUP, group_size, groups, train_together

HOW = LocalTraining(epochs=2, batch_size=4, momentum=0.5, weight_decay=0.1, loss="cross-entropy", seed=1)
PULL = 0.3


class Own(nn.Module):
    """The same layers in a forward of one's own: vmap's case."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(6, 5), nn.Linear(5, 3, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.relu(self.first(x))
        outputs: torch.Tensor = self.last(hidden * hidden)
        return outputs


def tied() -> nn.Module:
    layer = nn.Linear(6, 6)
    return nn.Sequential(layer, nn.Tanh(), layer, nn.Linear(6, 3))


def activated_twice() -> nn.Module:
    tanh = nn.Tanh()
    return nn.Sequential(nn.Linear(6, 6), tanh, nn.Linear(6, 6), tanh, nn.Linear(6, 3))


MODELS: dict[str, Callable[[], nn.Module]] = {
    "relu": lambda: nn.Sequential(nn.Flatten(), nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3)),
    "tanh, nested": lambda: nn.Sequential(nn.Sequential(nn.Linear(6, 5), nn.Tanh()), nn.Identity(), nn.Linear(5, 3)),
    "sigmoid, no bias": lambda: nn.Sequential(nn.Linear(6, 5, bias=False), nn.Sigmoid(), nn.Linear(5, 3)),
    "activation first and last": lambda: nn.Sequential(nn.Tanh(), nn.Linear(6, 3), nn.ReLU()),
    "logistic": lambda: nn.Sequential(nn.Flatten(), nn.Linear(6, 3)),
    "own forward": Own,
    "one activation twice": activated_twice,
}


@pytest.mark.parametrize("loss", ["cross-entropy", "double-softmax"])
@pytest.mark.parametrize("how", [HOW, replace(HOW, momentum=0.0, weight_decay=0.0)], ids=["extras", "plain"])
@pytest.mark.parametrize("batch_size", [4, None])
@pytest.mark.parametrize("name", MODELS)
def test_together_is_alone_to_rounding(name: str, batch_size: int | None, how: LocalTraining, loss: Loss) -> None:
    torch.manual_seed(0)
    model = FlatModule(MODELS[name]())
    how = replace(how, batch_size=batch_size, loss=loss)
    received = model.vector.clone()
    data = [Samples(torch.randn(10, 6), torch.randint(0, 3, (10,))) for _ in range(4)]
    work = [Assignment(client, 3, 0.1, 0.9) for client in (2, 5, 7, 11)]
    stacked = Samples(torch.stack([d.inputs for d in data]), torch.stack([d.targets for d in data]))
    trained, steps, running = train_together(model, how, received, stacked, work, PULL)
    for k in range(4):
        alone_steps, alone = LocalTrainer(model, how).train(received, data[k], work[k], Objective(PULL))
        assert steps == alone_steps
        assert running[k].item() == pytest.approx(alone, rel=1e-5)
        mine = torch.cat([parameter[k].reshape(-1) for parameter in trained])
        assert torch.allclose(mine, model.vector[: model.length], atol=1e-5)


def test_who_is_trained_together() -> None:
    small = FlatModule(MODELS["relu"]())
    assert group_size("auto", small) == GROUP
    assert group_size("never", small) == 1
    assert group_size(7, small) == 7
    assert group_size("auto", FlatModule(nn.Sequential(nn.Linear(500, 500)))) == 1
    assert group_size("auto", FlatModule(Own())) == 1
    assert group_size(7, FlatModule(Own())) == 7
    for unfit in (nn.Sequential(nn.Conv2d(1, 2, 3)), nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)),
                  nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5)), tied()):  # fmt: skip
        assert group_size(7, FlatModule(unfit)) == 1
    frozen = MODELS["relu"]()
    frozen[1].weight.requires_grad_(False)  # type: ignore[index]
    assert group_size(7, FlatModule(frozen)) == 1


@given(st.lists(st.tuples(st.integers(1, 3), st.sampled_from([1.0, 0.5])), min_size=1, max_size=30), st.integers(1, 8))
def test_groups_hold_equal_clients_and_everyone_once(clients: list[tuple[int, float]], size: int) -> None:
    samples, shares = [s for s, _ in clients], [p for _, p in clients]
    found = groups(list(range(len(clients))), samples, shares, size)
    assert sorted(position for group in found for position in group) == list(range(len(clients)))
    for group in found:
        assert len(group) <= size
        assert len({clients[position] for position in group}) == 1
