"""Mixup: blended samples and their losses."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from visits import GD, WORK, layer, trained, visit

from adafed import AdafedError, config_from
from adafed.client_rules import FedProx, Mixup
from adafed.client_rules.base import Visit
from adafed.training.flat_module import FlatModule
from adafed.training.local import GRADIENT_BATCH, Gradients, Samples, gradients


class Known:
    """A generator whose blending share is known."""

    def __init__(self, share: float) -> None:
        self.share = share

    def beta(self, *_: float) -> float:
        return self.share

    def permutation(self, count: int) -> np.ndarray:
        return np.arange(count)[::-1].copy()


def blended(monkeypatch: pytest.MonkeyPatch, share: float, seen: Visit, batch: torch.Tensor) -> tuple[Gradients, float]:
    with monkeypatch.context() as patched:
        patched.setattr(np.random, "default_rng", lambda *_: Known(share))
        begun = Mixup(1.0).begin(seen)
    assert (begun.pull, begun.correct) == (0.0, None)
    assert begun.gradients is not None
    return begun.gradients(batch)


def test_inputs_and_losses_are_blended(monkeypatch: pytest.MonkeyPatch) -> None:
    model, data = given = layer()
    batch = torch.tensor([4, 0, 3])
    grads, value = blended(monkeypatch, 0.7, visit(given), batch)
    other = batch.flip(0)
    outputs = model.module(0.7 * data.inputs[batch] + 0.3 * data.inputs[other])
    losses = [nn.functional.cross_entropy(outputs, data.targets[chosen]) for chosen in (batch, other)]
    wanted = 0.7 * losses[0] + 0.3 * losses[1]
    assert abs(value - wanted.item()) < 1e-6
    for one, two in zip(grads, torch.autograd.grad(wanted, model.trained), strict=True):
        assert torch.allclose(one, two, atol=1e-6)


def test_with_all_of_the_first_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    model, data = given = layer()
    batch = torch.arange(6)
    grads, value = blended(monkeypatch, 1.0, visit(given), batch)
    plain, plain_value = gradients(model, data, batch, GD)
    assert abs(value - plain_value) < 1e-6
    assert all(torch.allclose(one, two, atol=1e-6) for one, two in zip(grads, plain, strict=True))


def test_a_large_batch_is_blended_in_pieces_whose_gradients_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    random = torch.Generator().manual_seed(0)
    count = GRADIENT_BATCH + 7
    data = Samples(torch.randn(count, 3, generator=random), torch.randint(0, 2, (count,), generator=random))
    model = FlatModule(nn.Linear(3, 2))
    grads, value = blended(monkeypatch, 0.7, visit((model, data)), torch.arange(count))
    outputs = model.module(0.7 * data.inputs + 0.3 * data.inputs.flip(0))
    both = [nn.functional.cross_entropy(outputs, targets) for targets in (data.targets, data.targets.flip(0))]
    wanted = 0.7 * both[0] + 0.3 * both[1]
    assert value == pytest.approx(wanted.item(), rel=1e-5)
    for one, two in zip(grads, torch.autograd.grad(wanted, model.trained), strict=True):
        assert torch.allclose(one, two, atol=1e-6)


def test_it_is_the_same_each_time_and_another_for_another_client_round_or_seed() -> None:
    def moved(client: int, round: int, seed: int = 1) -> torch.Tensor:
        work = WORK._replace(client=client, round=round)
        return trained([Mixup(1.0)], layer(), how=replace(GD, epochs=3, seed=seed), work=work).row

    assert torch.equal(moved(1, 1), moved(1, 1))
    assert not torch.equal(moved(1, 1), moved(2, 1))
    assert not torch.equal(moved(1, 1), moved(1, 2))
    assert not torch.equal(moved(1, 1), moved(1, 1, seed=2))


def test_fedproxs_pull_goes_with_it() -> None:
    how = replace(GD, epochs=5)
    alone, held = (trained([Mixup(1.0), *more], layer(), how=how) for more in ([], [FedProx(8.0)]))
    assert held.row.norm() < alone.row.norm()


def test_words_cannot_be_blended() -> None:
    words = Samples(torch.zeros(4, 5, dtype=torch.int64), torch.zeros(4, dtype=torch.int64))
    with pytest.raises(AdafedError, match=r"^local\.mixup = 0\.5 blends inputs, .* words; it must be 0, and mixup"):
        Mixup(0.5).samples(words, {})


def test_two_rules_that_make_gradients_are_refused() -> None:
    with pytest.raises(AdafedError, match=r"^client\.rules has two rules that make the gradients of a batch"):
        trained([Mixup(1.0), Mixup(0.5)], layer())


def test_a_configuration_with_two_that_make_gradients_is_refused_before_the_run() -> None:
    """fcfc makes them only once a client is beyond its bound, which may be hours later."""
    for rules in (["mixup", "fcfc"], ["fcfc", "propfair"]):
        with pytest.raises(AdafedError, match=f"^{' and '.join(rules)} each make the gradients of a batch; leave"):
            config_from({"client": {"rules": rules}})
