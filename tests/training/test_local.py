"""One client's work: Algorithm 1's local steps, FedProx's and Ditto's pull, batches, and the measuring."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from adafed.client_rules.fedcorr.answers import probabilities
from adafed.training.flat_module import FlatModule
from adafed.training.local import (
    GRADIENT_BATCH,
    Assignment,
    LocalTrainer,
    LocalTraining,
    Samples,
    batches,
    gradients,
    measure,
    mixed_gradients,
    pulled_back,
    sample_losses,
    summaries,
)

GD = LocalTraining(
    epochs=1, batch_size=None, momentum=0.0, weight_decay=0.0, mu=0.0, loss="cross-entropy", seed=1
)  # fmt: skip
WORK = Assignment(client=3, round=1, lr=0.1)


class Quadratic(nn.Module):
    """Has the gradient theta - target for any samples: two logits whose cross-entropy gap is 1/2 ||theta - target||^2.

    With class 0, the loss is log(1 + exp(z_1 - z_0)); z is chosen so that this is the quadratic itself.
    """

    def __init__(self, start: list[float], target: list[float]) -> None:
        super().__init__()
        self.theta = nn.Parameter(torch.tensor(start))
        self.register_buffer("target", torch.tensor(target), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        distance = (self.theta - self._buffers["target"]).square().sum() / 2  # type: ignore[operator]
        logits = torch.stack([torch.zeros(()), torch.log(torch.expm1(distance))])
        return logits.expand(len(x), 2)


ONE = Samples(torch.zeros(1, 1), torch.zeros(1, dtype=torch.int64))


@pytest.mark.parametrize(("mu", "key"), [(0.1, "mu_0.1"), (1.0, "mu_1")])
def test_fedprox_oracle(oracles: dict[str, Any], mu: float, key: str) -> None:
    told = oracles["fedprox"]
    model = FlatModule(Quadratic([float(v) for v in told["start"]], [float(v) for v in told["target"]]))
    how = replace(GD, epochs=told["steps"], mu=mu)
    steps, _ = LocalTrainer(model, how).train(model.vector.clone(), ONE, WORK._replace(lr=told["lr"]))
    assert steps == told["steps"]
    assert model.vector[:3].tolist() == pytest.approx(told[key], rel=1e-5)


@pytest.mark.parametrize(("strength", "key"), [(0.1, "lambda_0.1"), (1.0, "lambda_1")])
def test_ditto_oracle(oracles: dict[str, Any], strength: float, key: str) -> None:
    told = oracles["ditto"]
    model = FlatModule(Quadratic([float(v) for v in told["v0"]], [float(v) for v in told["target"]]))
    received = model.vector.clone()
    received[:3] = torch.tensor(told["anchor"], dtype=torch.float32)
    trainer = LocalTrainer(model, replace(GD, epochs=told["steps"]))
    moved = trainer.personalise(model.vector.clone(), received, ONE, WORK, strength, told["lr"])
    assert moved[:3].tolist() == pytest.approx(told[key], rel=1e-5)


def linear(seed: int = 0) -> FlatModule:
    torch.manual_seed(seed)
    return FlatModule(nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3)))


def data(count: int, seed: int = 0) -> Samples:
    random = torch.Generator().manual_seed(seed)
    return Samples(torch.randn(count, 4, generator=random), torch.randint(0, 3, (count,), generator=random))


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
@pytest.mark.parametrize("mu", [0.0, 0.5])
def test_local_training_is_torchs_sgd(momentum: float, weight_decay: float, mu: float) -> None:
    how = replace(GD, epochs=3, batch_size=4, momentum=momentum, weight_decay=weight_decay, mu=mu)
    model, samples = linear(), data(10)
    received = model.vector.clone()
    trainer = LocalTrainer(model, how)
    steps, running = trainer.train(received, samples, WORK)
    assert steps == 9

    twin = linear()
    optimizer = torch.optim.SGD(twin.module.parameters(), lr=WORK.lr, momentum=momentum, weight_decay=weight_decay)
    values = []
    for batch in batches(how, WORK, 10):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(twin.module(samples.inputs[batch]), samples.targets[batch])
        values.append(loss.item())
        pulled = loss + mu / 2 * (twin_vector(twin) - received).square().sum()
        pulled.backward()
        optimizer.step()
    assert model.vector.tolist() == pytest.approx(twin.vector.tolist(), abs=1e-6)
    assert running == pytest.approx(sum(values) / len(values), rel=1e-5)


def twin_vector(model: FlatModule) -> torch.Tensor:
    return torch.cat([parameter.reshape(-1) for parameter in model.module.parameters()])


class Aliased(nn.Module):
    """Autograd hands out one and the same gradient for both parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Parameter(torch.zeros(3))
        self.b = nn.Parameter(torch.ones(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (self.a + self.b).expand(len(x), 3)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_gradients_that_share_memory_are_told_apart(momentum: float) -> None:
    how = replace(GD, epochs=3, weight_decay=0.1, momentum=momentum)
    model, samples = FlatModule(Aliased()), data(5)
    LocalTrainer(model, how).train(model.vector.clone(), samples, WORK)
    twin = Aliased()
    optimizer = torch.optim.SGD(twin.parameters(), lr=WORK.lr, momentum=momentum, weight_decay=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        nn.functional.cross_entropy(twin(samples.inputs), samples.targets).backward()
        optimizer.step()
    assert model.vector.tolist() == pytest.approx([*twin.a.tolist(), *twin.b.tolist()], abs=1e-6)


def test_a_full_batch_is_taken_in_pieces_whose_gradients_add_up() -> None:
    model, samples = linear(), data(2 * GRADIENT_BATCH + 7)
    grads, value = gradients(model, samples, torch.arange(len(samples)), "cross-entropy")
    loss = nn.functional.cross_entropy(model.module(samples.inputs), samples.targets)
    whole = torch.autograd.grad(loss, model.trained)
    assert value == pytest.approx(loss.item(), rel=1e-5)
    for piece, expected in zip(grads, whole, strict=True):
        assert torch.allclose(piece, expected, atol=1e-6)


@given(
    samples=st.integers(1, 40), batch=st.one_of(st.none(), st.integers(1, 50)), epochs=st.integers(1, 3),
    share=st.floats(0, 1),
)  # fmt: skip
def test_batches_cover_the_samples_once_an_epoch(samples: int, batch: int | None, epochs: int, share: float) -> None:
    how = replace(GD, epochs=epochs, batch_size=batch)
    whole = list(batches(how, WORK, samples))
    assert len(whole) == how.steps(samples)
    assert sorted(torch.cat(whole).tolist()) == sorted(list(range(samples)) * epochs)
    short = list(batches(how, WORK._replace(share=share), samples))
    assert len(short) == max(1, int(share * len(whole)))
    assert all(torch.equal(a, b) for a, b in zip(short, whole, strict=False))


class Dropping(nn.Module):
    """No layer of it tells that it draws random numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(nn.functional.dropout(x, 0.5, self.training))  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    "build", [lambda: nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 3)), Dropping], ids=["layer", "own"]
)
def test_dropout_draws_from_the_client_and_the_round_and_from_nobody_else(build: Callable[[], nn.Module]) -> None:
    def trained(work: Assignment) -> torch.Tensor:
        torch.manual_seed(0)
        model = FlatModule(build())
        torch.manual_seed(torch.seed() % 1000)  # whatever was drawn before
        before = torch.get_rng_state()
        LocalTrainer(model, GD).train(model.vector.clone(), data(20), work)
        assert torch.equal(torch.get_rng_state(), before)
        return model.vector.clone()

    assert torch.equal(trained(WORK), trained(WORK))
    assert not torch.equal(trained(WORK), trained(WORK._replace(client=4)))
    assert not torch.equal(trained(WORK), trained(WORK._replace(round=2)))


class Halving(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(x.mul_(0.5))  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    "build", [Halving, lambda: nn.Sequential(nn.ReLU(inplace=True), nn.Linear(4, 3))], ids=["own", "in a row"]
)
def test_a_module_that_writes_to_its_input_changes_no_sample(build: Callable[[], nn.Module]) -> None:
    model, samples = FlatModule(build()), data(20)
    before = samples.inputs.clone()
    LocalTrainer(model, GD).train(model.vector.clone(), samples, WORK)
    measure(model, samples.inputs, samples.targets, "cross-entropy")
    probabilities(model, samples.inputs)
    assert torch.equal(samples.inputs, before)


def test_measuring_is_the_mean_loss_and_the_share_of_right_answers() -> None:
    model, samples = linear(), data(700)
    scores = measure(model, samples.inputs, samples.targets, "cross-entropy")
    outputs = model.module(samples.inputs)
    (whole,) = summaries(scores, [700])
    assert whole is not None
    assert whole.loss == pytest.approx(nn.functional.cross_entropy(outputs, samples.targets).item(), rel=1e-5)
    assert whole.accuracy == pytest.approx((outputs.argmax(dim=1) == samples.targets).double().mean().item())


@given(st.lists(st.integers(0, 9), min_size=1, max_size=6))
def test_summaries_are_the_means_of_each_client(counts: list[int]) -> None:
    scores = torch.rand(sum(counts), 2, dtype=torch.float64)
    for found, own in zip(summaries(scores, counts), torch.split(scores, counts), strict=True):
        if len(own):
            assert found is not None
            assert [found.loss, found.accuracy] == pytest.approx(own.mean(dim=0).tolist())
        else:
            assert found is None


def test_double_softmax_bounds_the_loss() -> None:
    outputs = torch.tensor([[50.0, 0.0, 0.0], [-50.0, 50.0, 0.0]])
    found = sample_losses(outputs, torch.tensor([0, 0]), "double-softmax").tolist()
    assert found == pytest.approx([0.5514, 1.5514], abs=1e-3)


class _Known:
    """A generator whose mixing share is known."""

    def __init__(self, share: float) -> None:
        self.share = share

    def beta(self, *_: float) -> float:
        return self.share

    def permutation(self, count: int) -> np.ndarray:
        return np.arange(count)[::-1].copy()


def _linear() -> tuple[FlatModule, Samples]:
    torch.manual_seed(0)
    data = Samples(torch.randn(6, 3), torch.tensor([0, 1, 0, 1, 1, 0]))
    return FlatModule(nn.Linear(3, 2)), data


def test_mixup_blends_inputs_and_losses() -> None:
    model, data = _linear()
    batch = torch.tensor([4, 0, 3])
    how = replace(GD, mixup=1.0)
    grads, value = mixed_gradients(model, data, batch, how, _Known(0.7))  # type: ignore[arg-type]
    other = batch.flip(0)
    outputs = model.module(0.7 * data.inputs[batch] + 0.3 * data.inputs[other])
    losses = [torch.nn.functional.cross_entropy(outputs, data.targets[chosen]) for chosen in (batch, other)]
    wanted = 0.7 * losses[0] + 0.3 * losses[1]
    assert abs(value - wanted.item()) < 1e-6
    for one, two in zip(grads, torch.autograd.grad(wanted, model.trained), strict=True):
        assert torch.allclose(one, two, atol=1e-6)


def test_mixup_with_all_of_the_first_is_none() -> None:
    model, data = _linear()
    batch = torch.arange(6)
    grads, value = mixed_gradients(model, data, batch, replace(GD, mixup=1.0), _Known(1.0))  # type: ignore[arg-type]
    plain, plain_value = gradients(model, data, batch, "cross-entropy")
    assert abs(value - plain_value) < 1e-6
    assert all(torch.allclose(one, two, atol=1e-6) for one, two in zip(grads, plain, strict=True))


def test_mixup_is_the_same_each_time_and_another_for_another_client_or_round() -> None:
    def trained(client: int, round: int) -> torch.Tensor:
        model, data = _linear()
        work = WORK._replace(client=client, round=round)
        LocalTrainer(model, replace(GD, epochs=3, mixup=1.0)).train(model.vector.clone(), data, work)
        return model.vector.clone()

    assert torch.equal(trained(1, 1), trained(1, 1))
    assert not torch.equal(trained(1, 1), trained(2, 1))
    assert not torch.equal(trained(1, 1), trained(1, 2))


def test_fedcorrs_pull_is_the_derivative_of_the_distance() -> None:
    anchor = [torch.tensor([1.0, 2.0]), torch.tensor([0.5])]
    parameters = [torch.tensor([1.1, 2.0], requires_grad=True), torch.tensor([0.7], requires_grad=True)]
    distance = torch.cat([(p - a) for p, a in zip(parameters, anchor, strict=True)]).norm()
    assert abs(5 * 0.3 * distance.item() - 0.3354102) < 1e-6  # beta 5, mu 0.3, ||.|| = 0.2236068
    wanted = torch.autograd.grad(5 * 0.3 * distance, parameters)
    with torch.no_grad():
        found = pulled_back([torch.zeros(2), torch.zeros(1)], parameters, anchor, 5 * 0.3)
    assert all(torch.allclose(one, two, atol=1e-6) for one, two in zip(found, wanted, strict=True))


def test_fedcorrs_pull_spares_an_epochs_first_batch_and_shortens_the_way() -> None:
    def moved(pull: float, batch: int | None) -> torch.Tensor:
        model, data = _linear()
        start = model.vector.clone()
        LocalTrainer(model, replace(GD, epochs=4, batch_size=batch)).train(start, data, WORK._replace(pull=pull))
        return model.vector - start

    assert torch.allclose(moved(5.0, None), moved(0.0, None), atol=1e-6)  # a full batch is an epoch's first
    assert moved(5.0, 2).norm() < moved(0.0, 2).norm()
