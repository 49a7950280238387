"""One client's work: Algorithm 1's local steps and their objective, batches, and the measuring."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

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
    Gradients,
    LocalTrainer,
    LocalTraining,
    Objective,
    Samples,
    batches,
    gradients,
    picked,
)
from adafed.training.losses import sample_losses
from adafed.training.measuring import EVALUATION_BATCH, measure, summaries

GD = LocalTraining(epochs=1, batch_size=None, momentum=0.0, weight_decay=0.0, loss="cross-entropy", seed=1)
WORK = Assignment(client=3, round=1, lr=0.1)


PLAIN = Objective()


def linear(seed: int = 0) -> FlatModule:
    torch.manual_seed(seed)
    return FlatModule(nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3)))


def data(count: int, seed: int = 0) -> Samples:
    random = torch.Generator().manual_seed(seed)
    return Samples(torch.randn(count, 4, generator=random), torch.randint(0, 3, (count,), generator=random))


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
@pytest.mark.parametrize("pull", [0.0, 0.5])
def test_local_training_is_torchs_sgd(momentum: float, weight_decay: float, pull: float) -> None:
    how = replace(GD, epochs=3, batch_size=4, momentum=momentum, weight_decay=weight_decay)
    model, samples = linear(), data(10)
    received = model.vector.clone()
    trainer = LocalTrainer(model, how)
    steps, running = trainer.train(received, samples, WORK, Objective(pull))
    assert steps == 9

    twin = linear()
    optimizer = torch.optim.SGD(twin.module.parameters(), lr=WORK.lr, momentum=momentum, weight_decay=weight_decay)
    values = []
    for batch in batches(how, WORK, 10):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(twin.module(samples.inputs[batch]), samples.targets[batch])
        values.append(loss.item())
        pulled = loss + pull / 2 * (twin_vector(twin) - received).square().sum()
        pulled.backward()
        optimizer.step()
    assert model.vector.tolist() == pytest.approx(twin.vector.tolist(), abs=1e-6)
    assert running == pytest.approx(sum(values) / len(values), rel=1e-5)


def twin_vector(model: FlatModule) -> torch.Tensor:
    return torch.cat([parameter.reshape(-1) for parameter in model.module.parameters()])


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_the_pull_is_to_the_anchor_and_the_rate_is_ones_own(momentum: float) -> None:
    how = replace(GD, epochs=3, batch_size=4, momentum=momentum)
    model, samples = linear(), data(10)
    start, anchor = model.vector.clone(), linear(1).vector.clone()
    LocalTrainer(model, how).train(start, samples, WORK, Objective(0.5), anchor=anchor, lr=0.03)
    twin = linear()
    optimizer = torch.optim.SGD(twin.module.parameters(), lr=0.03, momentum=momentum)
    for batch in batches(how, WORK, 10):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(twin.module(samples.inputs[batch]), samples.targets[batch])
        (loss + 0.25 * (twin_vector(twin) - anchor).square().sum()).backward()
        optimizer.step()
    assert model.vector.tolist() == pytest.approx(twin.vector.tolist(), abs=1e-6)


def test_a_batchs_gradient_may_be_another_and_corrections_follow_in_their_order() -> None:
    """Each step is against s (2 g) + 1, where s is its number."""
    model, samples = linear(), data(10)
    start, asked, told = model.vector.clone(), [], []

    def twice(batch: torch.Tensor) -> tuple[Gradients, float]:
        asked.append(batch)
        grads, value = gradients(model, samples, batch, GD)
        return [2 * one for one in grads], -value

    def scaled(grads: Gradients, step: int) -> Gradients:
        told.append(step)
        return [step * one for one in grads]

    def shifted(grads: Gradients, step: int) -> Gradients:
        return [one + 1 for one in grads]

    how = replace(GD, epochs=2, batch_size=4)
    objective = Objective(0.0, twice, [scaled, shifted])
    steps, running = LocalTrainer(model, how).train(start, samples, WORK, objective)
    assert told == list(range(1, steps + 1)) == list(range(1, 7))
    assert all(torch.equal(one, two) for one, two in zip(asked, batches(how, WORK, 10), strict=True))
    found = model.vector.clone()

    twin, values = linear(), []
    for step, batch in enumerate(asked, start=1):
        grads, value = gradients(twin, samples, batch, GD)
        values.append(-value)
        with torch.no_grad():
            for parameter, grad in zip(twin.trained, grads, strict=True):
                parameter -= WORK.lr * (step * 2 * grad + 1)
    assert torch.allclose(found, twin.vector, atol=1e-5)
    assert running == pytest.approx(sum(values) / len(values), rel=1e-4)


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
    LocalTrainer(model, how).train(model.vector.clone(), samples, WORK, PLAIN)
    twin = Aliased()
    optimizer = torch.optim.SGD(twin.parameters(), lr=WORK.lr, momentum=momentum, weight_decay=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        nn.functional.cross_entropy(twin(samples.inputs), samples.targets).backward()
        optimizer.step()
    assert model.vector.tolist() == pytest.approx([*twin.a.tolist(), *twin.b.tolist()], abs=1e-6)


def test_a_full_batch_is_taken_in_pieces_whose_gradients_add_up() -> None:
    model, samples = linear(), data(2 * GRADIENT_BATCH + 7)
    grads, value = gradients(model, samples, torch.arange(len(samples)), GD)
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


@pytest.mark.parametrize("shape", [(7,), (7, 3), (7, 2, 4, 4), (7, 0)])
def test_picked_samples_are_those_that_indexing_gives(shape: tuple[int, ...]) -> None:
    values = torch.randn(shape).movedim(0, -1).contiguous().movedim(-1, 0)  # not in the order of memory
    for chosen in (torch.tensor([5, 0, 5, 6]), torch.tensor([], dtype=torch.long), slice(2, 5)):
        assert torch.equal(picked(values, chosen), values[chosen])


@given(samples=st.integers(1, 60), size=st.integers(2, 20))
def test_a_rest_that_is_too_small_to_be_trained_on_goes_with_those_before_it(samples: int, size: int) -> None:
    alone, together = (replace(GD, batch_size=size, least=least) for least in (1, 2))
    assert sum(together.parts(samples, size)) == sum(alone.parts(samples, size)) == samples
    assert samples == 1 or min(together.parts(samples, size)) >= 2
    if samples % size != 1 or samples == 1:
        assert together.parts(samples, size) == alone.parts(samples, size)
    assert [len(one) for one in batches(together, WORK, samples)] == together.parts(samples, size)


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
        LocalTrainer(model, GD).train(model.vector.clone(), data(20), work, PLAIN)
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
    LocalTrainer(model, GD).train(model.vector.clone(), samples, WORK, PLAIN)
    measure(model, samples.inputs, samples.targets, "cross-entropy")
    probabilities(model, samples.inputs)
    assert torch.equal(samples.inputs, before)


def test_measuring_is_the_mean_loss_and_the_share_of_right_answers() -> None:
    model, samples = linear(), data(EVALUATION_BATCH + 188)
    scores = measure(model, samples.inputs, samples.targets, "cross-entropy")
    outputs = model.module(samples.inputs)
    (whole,) = summaries(scores, [len(samples)])
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
