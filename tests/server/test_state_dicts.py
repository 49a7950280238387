"""state_dicts through a rule: parameters by the rule, statistics by sample count, integers left alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import adafed
from adafed import AdafedError

StateDict = dict[str, torch.Tensor]
PLAIN = adafed.rule("fedavg", weighted=False)


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 2))


def trained(count: int = 3) -> tuple[StateDict, list[StateDict]]:
    before = {name: value.clone() for name, value in model().state_dict().items()}
    after = []
    for k in range(count):
        generator = torch.Generator().manual_seed(k)
        after.append(
            {
                name: value + torch.rand(value.shape, generator=generator) if value.is_floating_point() else value + k
                for name, value in before.items()
            }
        )
    return before, after


def test_parameters_go_through_the_rule() -> None:
    before, after = trained()
    rule = adafed.rule("adafed")
    outcome = adafed.aggregate_states(rule, before, after, losses=[1.0, 2.0, 3.0])
    names = [name for name in before if "running" not in name and "num" not in name]
    assert list(outcome.directions) == names
    flat = torch.stack([torch.cat([(before[n] - state[n]).flatten() for n in names]) for state in after])
    expected = adafed.aggregate(rule, flat, losses=[1.0, 2.0, 3.0]).direction
    assert torch.equal(torch.cat([outcome.directions[n].flatten() for n in names]), expected)
    assert all(outcome.directions[name].shape == before[name].shape for name in names)


def test_statistics_are_averaged_by_sample_count() -> None:
    before, after = trained()
    outcome = adafed.aggregate_states(PLAIN, before, after, sizes=[1, 2, 5])
    for name in ("1.running_mean", "1.running_var"):
        expected = (after[0][name] + 2 * after[1][name] + 5 * after[2][name]) / 8
        torch.testing.assert_close(outcome.statistics[name], expected)
    plain = adafed.aggregate_states(PLAIN, before, after)
    torch.testing.assert_close(
        plain.statistics["1.running_mean"], torch.stack([state["1.running_mean"] for state in after]).mean(dim=0)
    )
    assert outcome.untouched == ("1.num_batches_tracked",)


def test_applied_state_loads_into_the_model() -> None:
    before, after = trained()
    outcome = adafed.aggregate_states(PLAIN, before, after)
    new = outcome.applied(before, server_lr=0.5)
    assert list(new) == list(before)
    mean = torch.stack([state["0.weight"] for state in after]).mean(dim=0)
    torch.testing.assert_close(new["0.weight"], 0.5 * before["0.weight"] + 0.5 * mean)
    assert torch.equal(new["1.running_var"], outcome.statistics["1.running_var"])
    assert torch.equal(new["1.num_batches_tracked"], before["1.num_batches_tracked"])
    assert {name: value.dtype for name, value in new.items()} == {name: value.dtype for name, value in before.items()}
    model().load_state_dict(new)
    torch.testing.assert_close(outcome.applied(before)["2.bias"], torch.stack([s["2.bias"] for s in after]).mean(dim=0))


def test_plain_average_of_states_is_fedavg() -> None:
    before, after = trained()
    new = adafed.aggregate_states(adafed.rule("fedavg"), before, after, sizes=[1, 1, 2]).applied(before)
    for name in before:
        if before[name].is_floating_point():
            torch.testing.assert_close(new[name], 0.25 * after[0][name] + 0.25 * after[1][name] + 0.5 * after[2][name])


def test_dropped_clients_have_no_part_in_the_statistics() -> None:
    before, after = trained()
    after[1]["0.weight"][0, 0] = float("nan")
    after[1]["1.running_mean"][:] = float("nan")
    outcome = adafed.aggregate_states(PLAIN, before, after, clients=["a", "b", "c"])
    assert list(outcome.outcome.diagnostics.dropped) == ["b"]
    expected = (after[0]["1.running_mean"] + after[2]["1.running_mean"]) / 2
    torch.testing.assert_close(outcome.statistics["1.running_mean"], expected)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_statistics_of_no_use_do_not_reach_the_model(bad: float) -> None:
    before, after = trained()
    after[1]["1.running_var"][0] = bad
    outcome = adafed.aggregate_states(PLAIN, before, after)
    for name in ("1.running_mean", "1.running_var"):
        torch.testing.assert_close(outcome.statistics[name], (after[0][name] + after[2][name]) / 2)
    for state in after:
        state["1.running_var"][0] = bad
    none = adafed.aggregate_states(PLAIN, before, after)
    assert none.statistics == {}
    assert torch.equal(none.applied(before)["1.running_var"], before["1.running_var"])


@pytest.mark.parametrize("size", [float("nan"), -4.0, None, 0.0, float("inf")])
def test_sample_counts_of_no_use_are_left_out_of_the_statistics(size: Any) -> None:
    before, after = trained()
    outcome = adafed.aggregate_states(PLAIN, before, after, sizes=[1, size, 1])
    expected = (after[0]["1.running_mean"] + after[2]["1.running_mean"]) / 2
    torch.testing.assert_close(outcome.statistics["1.running_mean"], expected)


def test_statistics_may_be_named() -> None:
    before = {"weight": torch.zeros(2), "scale": torch.ones(1), "running_mean": torch.zeros(1)}
    after = [{"weight": torch.ones(2), "scale": torch.tensor([3.0]), "running_mean": torch.ones(1)}]
    outcome = adafed.aggregate_states(PLAIN, before, after, statistics=["scale"])
    assert list(outcome.directions) == ["weight", "running_mean"]
    assert outcome.statistics["scale"].tolist() == [3.0]


def test_types_of_mixed_models_are_kept() -> None:
    before = {"a": torch.zeros(2), "b": torch.zeros(2, dtype=torch.float64), "c": torch.zeros(1, dtype=torch.bfloat16)}
    after = [{name: value + 1 for name, value in before.items()} for _ in range(2)]
    new = adafed.aggregate_states(PLAIN, before, after).applied(before)
    assert {name: value.dtype for name, value in new.items()} == {name: value.dtype for name, value in before.items()}
    assert all(value.tolist() == [1.0] * len(value) for value in new.values())


@pytest.mark.parametrize(
    ("after", "options", "sentence"),
    [
        ([], {}, "after is an empty list"),
        ([{"weight": torch.zeros(2)}, {}], {}, r"client 1: weight is missing; it must have shape \(2,\)"),
        ([{"weight": torch.zeros(3)}], {}, r"client 0: weight is of shape \(3,\); it must have shape \(2,\)"),
        ([{"weight": torch.zeros(2)}], {"statistics": ["mean"]}, "statistics has 'mean'; it must name .* among weight"),
        ([{"weight": torch.zeros(2)}], {"statistics": ["weight"]}, "no parameter is left among weight"),
        ([{"weight": torch.zeros(2)}], {"losses": [1, 2]}, "losses has 2 values for 1 updates"),
    ],
)
def test_mistakes_are_told_in_a_sentence(after: Any, options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(AdafedError, match=sentence):
        adafed.aggregate_states(PLAIN, {"weight": torch.zeros(2)}, after, **options)


def test_statistics_count_samples_as_guards_let_them() -> None:
    before = {"weight": torch.zeros(2), "running_mean": torch.zeros(1)}
    sent = [{"weight": torch.tensor([-1.0, float(k)]), "running_mean": torch.zeros(1)} for k in range(4)]
    sent.append({"weight": torch.tensor([-1.0, 9.0]), "running_mean": torch.full((1,), 100.0)})
    rule, sizes = adafed.rule("fedavg", weighted=False), [10, 10, 10, 10, 10**6]
    out = adafed.aggregate_states(rule, before, sent, sizes=sizes, guards=["sizes"])
    assert float(out.statistics["running_mean"]) <= 60.0
    assert float(adafed.aggregate_states(rule, before, sent, sizes=sizes).statistics["running_mean"]) > 99.0


@pytest.mark.parametrize("statistics", [None, ["mask"]])
def test_a_mask_that_nobody_changes_may_be_infinite(statistics: list[str] | None) -> None:
    mask = torch.full((2, 2), float("-inf")).triu(1)
    before = {"w": torch.zeros(3), "mask": mask}
    after = [{"w": torch.full((3,), -float(k)), "mask": mask.clone()} for k in (1, 2)]
    out = adafed.aggregate_states(PLAIN, before, after, statistics=statistics)
    made = out.applied(before, 1.0)
    assert made["w"].tolist() == [-1.5] * 3
    assert torch.equal(made["mask"], mask)
    after[1]["mask"] = torch.full((2, 2), float("inf"))
    again = adafed.aggregate_states(PLAIN, before, after, statistics=statistics)
    assert torch.equal(again.applied(before, 1.0)["mask"], mask)
