"""FCFC's constraint: Delta_k by hand, its gradient, its multipliers, and that groups are treated more alike."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from visits import GD, layer, trained, visit

import adafed
from adafed import AdafedError
from adafed.client_rules import FCFC, Ditto, Setting
from adafed.client_rules.base import TellingReply
from adafed.client_rules.fcfc import FOUND, MULTIPLIERS
from adafed.rounds.records import RoundRecord
from adafed.training.flat_module import FlatModule
from adafed.training.local import Samples


def grouped() -> tuple[FlatModule, Samples]:
    """Feature 0 is the group: 4 of 6 in it. The model answers with class 1 where feature 1 is positive: for 3 of the
    4, and for 1 of the other 2. Of those whose class is 1 it finds 2 of 2 and 1 of 2."""
    features = torch.tensor([[1.0, 2.0], [1.0, 1.0], [1.0, 3.0], [1.0, -1.0], [0.0, 2.0], [0.0, -2.0]])
    model = FlatModule(nn.Linear(2, 2))
    model.receive(torch.tensor([0.0, -1.0, 0.0, 1.0, 0.0, 0.0]))
    return model, Samples(features, torch.tensor([1, 1, 0, 0, 1, 1]))


def pressed(given: tuple[FlatModule, Samples], rule: FCFC, over: float, under: float) -> Any:
    """The gradients of a visit whose client kept these multipliers."""
    kept = {MULTIPLIERS: torch.tensor([over, under], dtype=torch.float64)}
    return rule.begin(visit(given, kept=kept)).gradients


@pytest.mark.parametrize(("measure", "wanted"), [("parity", 3 / 4 - 1 / 2), ("opportunity", 2 / 2 - 1 / 2)])
def test_the_difference_by_hand(measure: Any, wanted: float) -> None:
    one = visit(grouped())
    rule = FCFC(measure=measure, most=0.05, step=2.0, sharpness=50.0)
    rule.end(one)
    assert one.tell["disparity"] == pytest.approx(wanted)
    assert one.kept[MULTIPLIERS].tolist() == pytest.approx([2.0 * (wanted - 0.05), 0.0])


def test_multipliers_fall_again_and_stop_at_zero() -> None:
    kept = {MULTIPLIERS: torch.tensor([0.5, 3.0], dtype=torch.float64)}
    one = visit(grouped(), kept=kept)
    FCFC(most=0.75, sharpness=50.0).end(one)  # Delta is 0.25: within on both sides, by 0.5 and by 1
    assert one.kept[MULTIPLIERS].tolist() == pytest.approx([0.0, 2.0])


def test_the_gradient_is_that_of_the_lagrangian() -> None:
    model, data = given = grouped()
    rule = FCFC(most=0.0, step=1e-9, sharpness=2.0)
    grads, value = pressed(given, rule, 0.7, 0.3)(torch.arange(6))
    outputs = model.module(data.inputs)
    loss = nn.functional.cross_entropy(outputs, data.targets)
    chance = torch.softmax(2.0 * outputs, dim=1)[:, 1]
    exact = torch.autograd.grad(loss + 0.4 * (chance[:4].mean() - chance[4:].mean()), model.trained)
    assert value == pytest.approx(loss.item(), rel=1e-6)  # the server is told f_k
    assert all(torch.allclose(one, two, atol=1e-6) for one, two in zip(grads, exact, strict=True))


def test_batches_average_to_the_whole_whatever_groups_they_hold() -> None:
    given = grouped()
    found = pressed(given, FCFC(step=1e-9), 1.0, 0.0)
    whole = found(torch.arange(6))[0]
    halves = [found(batch)[0] for batch in (torch.tensor([0, 1, 2]), torch.tensor([3, 4, 5]))]  # the first: one group
    for all_, *some in zip(whole, *halves, strict=True):
        assert torch.allclose(all_, sum(some) / 2, atol=1e-6)


@pytest.mark.parametrize("rule", [FCFC(most=1.0), FCFC(above=5.0)], ids=["all is allowed", "one group"])
def test_without_anything_to_hold_down_training_is_plain(rule: FCFC) -> None:
    assert rule.begin(visit(grouped())).gradients is None
    assert torch.equal(trained([rule], grouped()).row, trained([], grouped()).row)


def test_a_client_of_one_group_tells_nothing() -> None:
    one = visit(grouped())
    FCFC(above=5.0).end(one)
    assert one.tell == {}
    assert one.kept[MULTIPLIERS].tolist() == [0.0, 0.0]


def test_a_second_model_of_the_visit_leaves_the_multipliers_alone() -> None:
    rule = FCFC(most=0.0)
    alone, both = trained([rule], grouped()), trained([rule, Ditto()], grouped())
    assert torch.equal(alone.row, both.row)
    assert alone.told == both.told


def test_a_round_notes_the_largest_and_the_mean_and_hears_no_nonsense() -> None:
    plan = FCFC().plan(Setting(clients=9, rounds=1, seed=0))
    known = plan.fresh(5)
    assert plan.notes(1, known) == {}
    told: list[Any] = [0.5, -0.7, None, "x", float("nan"), float("inf"), True, 7.0, [0.1]]
    replies = [TellingReply(k, {"disparity": one}) for k, one in enumerate(told)] + [TellingReply(9, {})]
    known = plan.learned(1, known, replies, lambda *_: [])
    assert known[FOUND].tolist() == pytest.approx([0.7, 0.6, 2])
    assert plan.notes(1, known)["disparity"] == {"largest": 0.7, "mean": pytest.approx(0.6), "clients": 2}
    assert plan.notes(2, plan.learned(2, known, [], lambda *_: [])) == {}


def biased(clients: int, samples: int) -> dict[str, tuple[Any, Any]]:
    """Feature 0 is the group, feature 1 favours it, and so do the labels."""
    found = {}
    for client in range(clients):
        random = np.random.default_rng([7, client])
        group, x = random.random(samples) < 0.5, random.normal(size=(samples, 4)).astype(np.float32)
        x[:, 0], x[:, 1] = group, x[:, 1] + group
        found[f"{client}"] = (x, (x[:, 1] + x[:, 2] + 0.5 * (group - 0.5) > 0.5).astype(np.int64))
    return found


@pytest.mark.parametrize("rule", ["fcfc", "adafed"])
def test_groups_are_treated_more_alike(rule: str) -> None:
    """By the rounds' notes, under two server rules; without the constraint `most` is 1, which changes nothing."""
    given = {
        "rounds": 60,
        "data": {"name": f"{__name__}:biased", "clients": 4, "samples": 200},
        "model": {"name": "logistic"},
        "local": {"lr": 0.2, "batch_size": 20},
        "rule": rule,
        "memory": {"rounds": 0},
        "run": {"workers": 0},
    }

    def late(most: float) -> float:
        rules = [{"name": "fcfc", "most": most}]
        records: list[RoundRecord] = list(adafed.simulate(adafed.config_from(given | {"client": {"rules": rules}})))
        return float(np.mean([record.notes["disparity"]["mean"] for record in records[-20:]]))

    assert late(0.05) < late(1.0) / 2


def test_mistakes_are_told_in_a_sentence() -> None:
    with pytest.raises(AdafedError, match=r"^fcfc\.feature is 3; there are 3 features, counted from 0$"):
        trained([FCFC(feature=3)], layer())
    with pytest.raises(AdafedError, match=r"^fcfc\.positive is 2; the model tells 2 classes apart, from 0$"):
        trained([FCFC(positive=2, most=0.0, above=0.0)], layer())
    images = Samples(torch.zeros(2, 1, 3, 3), torch.tensor([0, 1]))
    with pytest.raises(
        AdafedError, match=r"samples here have shape \(1, 3, 3\) of torch.float32; they must be rows of"
    ):
        trained([FCFC()], (layer()[0], images))
    with pytest.raises(AdafedError, match=r"^fcfc\.most is 2\.0; it must be a finite number at least 0 and at most"):
        FCFC(most=2.0)
    with pytest.raises(AdafedError, match=r"^fcfc\.measure is 'odds'; "):
        FCFC(measure="odds")  # type: ignore[arg-type]
    assert GD.loss == "cross-entropy"  # what the gradients above were held against
