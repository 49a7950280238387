"""FedCorr's client: held to the received model, trained on corrected labels, and telling what its model answers."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn
from visits import GD, layer, trained, visit

from adafed.client_rules import FedCorr
from adafed.client_rules.base import Begun
from adafed.client_rules.fedcorr.answers import predicted, suspicion
from adafed.training.flat_module import FlatModule
from adafed.training.local import Samples


class Pair(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Parameter(torch.tensor([1.1, 2.0]))
        self.b = nn.Parameter(torch.tensor([0.7]))


@pytest.mark.parametrize("step", [2, 3, 5, 6])
def test_the_pull_is_the_derivative_of_the_distance(step: int) -> None:
    anchor = torch.tensor([1.0, 2.0, 0.5])
    model, data = FlatModule(Pair()), layer()[1]
    distance = torch.cat([model.module.a, model.module.b]).sub(anchor).norm()  # type: ignore[list-item]
    assert abs(5 * 0.3 * distance.item() - 0.3354102) < 1e-6  # beta 5, mu 0.3, ||.|| = 0.2236068
    wanted = torch.autograd.grad(5 * 0.3 * distance, model.trained)
    seen = visit((model, data), anchor, how=replace(GD, epochs=2, batch_size=2), orders={"pull": 5 * 0.3})
    begun = FedCorr().begin(seen)
    assert (begun.pull, begun.gradients) == (0.0, None)
    assert begun.correct is not None
    with torch.no_grad():
        found = begun.correct([torch.zeros(2), torch.zeros(1)], step)
        more = begun.correct([torch.ones(2), torch.ones(1)], step)
    assert all(torch.allclose(one, two, atol=1e-6) for one, two in zip(found, wanted, strict=True))
    assert all(torch.allclose(one, two + 1, atol=1e-6) for one, two in zip(more, wanted, strict=True))


@pytest.mark.parametrize("step", [1, 4])
def test_the_pull_spares_an_epochs_first_batch(step: int) -> None:
    model, data = FlatModule(Pair()), layer()[1]
    seen = visit((model, data), torch.zeros(3), how=replace(GD, epochs=2, batch_size=2), orders={"pull": 1.5})
    begun = FedCorr().begin(seen)
    assert begun.correct is not None
    given = [torch.ones(2), torch.ones(1)]
    assert all(torch.equal(one, two) for one, two in zip(begun.correct(given, step), given, strict=True))


def test_a_model_that_has_not_moved_is_not_pulled() -> None:
    model, data = FlatModule(Pair()), layer()[1]
    begun = FedCorr().begin(visit((model, data), how=replace(GD, batch_size=2), orders={"pull": 1.5}))
    assert begun.correct is not None
    with torch.no_grad():
        assert all(one.equal(torch.zeros_like(one)) for one in begun.correct([torch.zeros(2), torch.zeros(1)], 2))


@pytest.mark.parametrize("momentum", [0.0, 0.5])
def test_the_pull_spares_full_batches_and_shortens_the_way(momentum: float) -> None:
    def moved(pull: float, batch: int | None) -> torch.Tensor:
        how = replace(GD, epochs=4, batch_size=batch, momentum=momentum)
        return trained([FedCorr()], layer(), how=how, orders={"fedcorr": {"pull": pull}}).row

    assert torch.allclose(moved(5.0, None), moved(0.0, None), atol=1e-6)  # a full batch is an epoch's first
    assert moved(5.0, 2).norm() < moved(0.0, 2).norm()


@pytest.mark.parametrize("orders", [{}, {"pull": 0.0, "suspected": True}])
def test_a_clean_client_trains_plainly(orders: dict[str, float]) -> None:
    assert FedCorr().begin(visit(layer(), orders=orders)) == Begun()
    how = replace(GD, epochs=2, batch_size=2)
    found = trained([FedCorr()], layer(), how=how, orders={"fedcorr": orders})
    assert torch.equal(found.row, trained([], layer(), how=how).row)


def test_corrected_labels_take_the_place_of_the_datas() -> None:
    model, data = layer()
    labels = [1, 1, 0, 0, 1, 0]
    corrected = FedCorr().samples(data, {"labels": labels})
    assert corrected.inputs is data.inputs
    assert corrected.targets.tolist() == labels
    assert corrected.targets.dtype == data.targets.dtype
    assert FedCorr().samples(data, {}) is data
    own = Samples(data.inputs, torch.tensor(labels))
    wanted = trained([], (model, own), layer()[0].vector.clone())
    found = trained([FedCorr()], (model, data), layer()[0].vector.clone(), orders={"fedcorr": {"labels": labels}})
    assert torch.equal(found.row, wanted.row)


def test_a_suspected_client_tells_what_its_trained_model_answers_on_the_labels_it_has() -> None:
    labels = [1, 1, 0, 0, 1, 0]
    orders = {"fedcorr": {"suspected": True, "labels": labels}}
    found = trained([FedCorr(neighbours=2)], given := layer(), how=replace(GD, epochs=3), orders=orders)
    model, data = given
    model.receive(found.model)
    wanted = suspicion(model, Samples(data.inputs, torch.tensor(labels)), 2)
    assert found.told.keys() == {"fedcorr"}
    assert found.told["fedcorr"]["losses"] == pytest.approx(wanted["losses"], rel=1e-6)
    assert found.told["fedcorr"]["dimension"] == pytest.approx(wanted["dimension"], rel=1e-4)
    assert trained([FedCorr()], layer(), orders={"fedcorr": {"pull": 1.0}}).told == {}


def test_its_answer_is_the_models() -> None:
    model, data = layer()
    assert FedCorr().answer(model, data) == predicted(model, data)


@pytest.mark.parametrize(
    ("group", "visits"), [(1, 10), (3, 4), (10, 1), (50, 1)]
)  # fmt: skip
def test_rounds_of_the_first_stage_count_by_their_clients(group: int, visits: int) -> None:
    rule = FedCorr(iterations=2, group=group)
    assert rule.visits(10) == visits
    assert rule.trained_rounds(40, 10, 0.5) == 40 - 2 * visits + 2 / 0.5  # an iteration is everyone, two half cohorts
