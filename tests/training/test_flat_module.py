"""A module and its flat vector are the same numbers."""

from __future__ import annotations

import torch
from torch import nn

from adafed.training.flat_module import FlatModule, initial_module


def normed() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4, momentum=None), nn.Linear(4, 2))


def test_parameters_come_first_and_floating_buffers_follow() -> None:
    module = normed()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    model = FlatModule(module)
    assert (model.length, model.statistics) == (3 * 4 + 4 + 4 + 4 + 4 * 2 + 2, 8)
    after = module.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
    model.vector.fill_(0.5)
    assert all((value == 0.5).all() for value in module.state_dict().values() if value.is_floating_point())
    with torch.no_grad():
        module[0].weight.fill_(2.0)
        module[1].running_mean.fill_(3.0)
    assert (model.vector[:12] == 2.0).all()
    assert (model.vector[model.length : model.length + 4] == 3.0).all()


def test_training_moves_the_vector() -> None:
    model = FlatModule(normed())
    old = model.vector.clone()
    model.module.train()
    model.module(torch.randn(5, 3)).sum().backward()
    assert not torch.equal(model.vector[model.length :], old[model.length :])


def test_receiving_leaves_nothing_of_what_was_before() -> None:
    """With momentum=None BatchNorm averages over the batches it has counted."""
    model = FlatModule(normed())
    start, inputs = model.vector.clone(), torch.randn(6, 3)
    found = []
    for _ in range(2):
        model.receive(start)
        model.module.train()
        for k in (1, 2, 3):
            model.module(inputs * k)
        found.append(model.vector.clone())
    assert torch.equal(*found)


def test_views_cut_another_vector_the_same_way() -> None:
    model = FlatModule(normed())
    for view, parameter in zip(model.views(model.vector), model.parameters, strict=True):
        assert torch.equal(view, parameter)


def test_initial_weights_have_a_seed_of_their_own() -> None:
    state = torch.random.get_rng_state()
    one, other = (FlatModule(initial_module(normed, 5)).vector for _ in range(2))
    assert torch.equal(one, other)
    assert not torch.equal(one, FlatModule(initial_module(normed, 6)).vector)
    assert torch.equal(state, torch.random.get_rng_state())
