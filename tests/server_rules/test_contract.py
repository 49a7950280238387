"""What every registered rule must do, whatever its formula: found in the registry, so a new rule is tested unasked."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import adafed
from adafed.testing import server_rules as testing
from adafed.testing.server_rules import Call, cohort, needed, same

# Options that take a rule through its branches; a rule that is not listed runs with its defaults.
OPTIONS: dict[str, list[dict[str, Any]]] = {
    "adafed": [
        {},
        {"gamma": 0.0},
        {"gamma": 5.0, "scale": "min"},
        {"gamma": 5.0, "scale": "update"},
        {"hull": "affine", "scale": "update"},
        {"preset": "paper", "gamma": 0.1},
        {"hull": "simplex"},
        {"hull": "simplex", "gamma": 10.0, "scale": "paper"},
        {"ridge": 0.01},
    ],
    "afl": [{}, {"step": 0.0}, {"step": 10.0}],
    "agnosticfair": [{}, {"over": "clients", "step": 1.0}, {"kernels": 1}, {"kernels": 3, "width": 0.01, "step": 9.0}],
    "drfl": [{}, {"q": 0.0}, {"q": 5.0}],
    "fcfc": [{}, {"delta": 0.1}, {"pareto_from": 1}, {"pareto_from": 2, "decay": 0.5}],
    "fedavg": [{}, {"weighted": False}],
    "fedfa": [{}, {"alpha": 1.0, "beta": 0.0}, {"variant": "easyfl"}, {"variant": "fedlf"}],
    "fedfv": [{}, {"alpha": 0.0, "tau": 0}, {"alpha": 1 / 3, "tau": 3}, {"alpha": 1.0}],
    "fedgini": [{}, {"epsilon": 0.0}, {"epsilon": 1.0}],
    "fedmdfg": [{}, {"theta": 90.0}, {"theta": 0.001, "absent": False}],
    "fedmgda+": [{}, {"epsilon": 0.0}, {"epsilon": 1.0}, {"epsilon": 0.05, "prior": "size"}],
    "gifair": [{}, {"c": 0.0}],
    "propfair": [{}, {"M": 2.0}, {"M": 1e9}],
    "qffl": [{}, {"q": 0.0}, {"q": 0.5, "lr": 0.05}, {"q": 10.0}],
    "term": [{}, {"t": 5.0, "weighted": True}, {"t": -1.0}, {"t": 1.0, "variant": "reference"}],
}
CASES = [(name, options) for name in adafed.rules() for options in OPTIONS.get(name, [{}])]
IDS = ["-".join([name, *(f"{key}={value}" for key, value in options.items())]) for name, options in CASES]


@pytest.fixture(params=CASES, ids=IDS)
def rule(request: pytest.FixtureRequest) -> adafed.Rule:
    name, options = request.param
    return adafed.rule(name, **options)


def test_direction_and_diagnostics_follow_from_the_coefficients(rule: adafed.Rule) -> None:
    call = cohort(0)
    outcome = adafed.aggregate(rule, **call)
    expected = torch.from_numpy(outcome.coefficients) @ call["updates"]
    assert same(outcome.direction, expected, 1e-12)
    np.testing.assert_allclose(outcome.diagnostics.rates, (call["updates"] @ expected).numpy(), rtol=1e-9, atol=1e-12)
    assert outcome.diagnostics.norm == pytest.approx(float(expected.norm()))
    assert outcome.diagnostics.mean_norm == pytest.approx(float(call["updates"].mean(dim=0).norm()))
    assert outcome.diagnostics.negative == int((outcome.coefficients < 0).sum())
    assert (outcome.diagnostics.condition is not None) == ("gram" in rule.needs)
    assert outcome.diagnostics.dropped == {}


def test_answers_with_one_coefficient_for_each_row(rule: adafed.Rule) -> None:
    testing.one_coefficient_for_each_row(rule)


def test_order_of_the_clients_does_not_matter(rule: adafed.Rule) -> None:
    testing.order_does_not_matter(rule)


def test_ties_are_broken_by_client(rule: adafed.Rule) -> None:
    testing.ties_are_broken_by_client(rule)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
def test_finite_input_gives_finite_output(rule: adafed.Rule, dtype: torch.dtype) -> None:
    testing.finite_output(rule, [dtype])


def test_single_client_moves_along_its_update(rule: adafed.Rule) -> None:
    testing.single_client(rule)


def test_restored_state_continues_with_the_same_bits(rule: adafed.Rule) -> None:
    testing.state_is_json(rule)
    testing.state_goes_through_json(rule)


def test_answer_is_pure(rule: adafed.Rule) -> None:
    testing.is_pure(rule)


@pytest.mark.parametrize("factor", [1e-6, 3.0, 1e6])
def test_scaling_law(rule: adafed.Rule, factor: float) -> None:
    """A rule without such a law does not even come near one."""
    testing.scaling_law(rule, [factor])
    if rule.degree is None:
        call = cohort(31)
        plain = adafed.aggregate(rule, **call).direction
        larger = adafed.aggregate(rule, **call | {"updates": factor * call["updates"]}).direction
        lawful = [float((larger / factor**power - plain).norm()) < 1e-9 * float(plain.norm()) for power in (0, 1)]
        assert not any(lawful) or rule.options().get("q") == 0.0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
def test_layouts_agree_in_every_bit(rule: adafed.Rule, dtype: torch.dtype, tmp_path: Path) -> None:
    call = cohort(8, length=3000, dtype=dtype)
    matrix = call["updates"]
    path = tmp_path / "updates"
    mapped = np.memmap(path, matrix.numpy().dtype, "w+", shape=tuple(matrix.shape))
    mapped[:] = matrix.numpy()
    mapped.flush()
    read = np.memmap(path, matrix.numpy().dtype, "r", shape=tuple(matrix.shape))
    expected = adafed.aggregate(rule, **call)
    for layout in (list(matrix), [row.clone() for row in matrix], read, list(read), matrix.T.contiguous().T):
        found = adafed.aggregate(rule, **call | {"updates": layout})
        assert torch.equal(found.direction, expected.direction)
        assert np.array_equal(found.coefficients, expected.coefficients)
        assert np.array_equal(found.diagnostics.rates, expected.diagnostics.rates)


@pytest.mark.parametrize("spoil", testing.SPOILS)
def test_dropped_clients_leave_the_rest_as_if_they_had_not_come(
    rule: adafed.Rule, spoil: Callable[[Call], None]
) -> None:
    testing.dropped_clients_leave_no_trace(rule, [spoil])


def test_missing_fact_is_told_in_a_sentence(rule: adafed.Rule) -> None:
    for need in rule.needs - {"gram", "norms"}:
        call = needed(rule, cohort(9))
        del call[need]
        with pytest.raises(adafed.AdafedError, match=f"rule .* needs {need}; pass {need}="):
            adafed.aggregate(rule, **call)


def test_facts_that_are_not_needed_change_nothing(rule: adafed.Rule) -> None:
    testing.facts_not_needed_change_nothing(rule)


def test_clients_need_no_names(rule: adafed.Rule) -> None:
    call = cohort(12)
    del call["clients"]
    unnamed = adafed.aggregate(rule, **call)
    named = adafed.aggregate(rule, **call, clients=[0, 1, 2, 3, 4])
    assert torch.equal(unnamed.direction, named.direction)


def test_is_described_for_people_and_machines(rule: adafed.Rule) -> None:
    testing.is_described(rule)
    assert rule.source


def test_every_property_is_tested_here() -> None:
    """A property that is added is one that registered rules must have."""
    here = Path(__file__).read_text()
    assert all(f"testing.{check.__name__}(rule" in here for check in testing.PROPERTIES.values())
