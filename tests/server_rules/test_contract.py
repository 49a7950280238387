"""What every registered rule must do, whatever its formula: found in the registry, so a new rule is tested unasked."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import adafed

Call = dict[str, Any]

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
    "fcfc": [{}, {"delta": 0.1}, {"pareto_from": 1}, {"pareto_from": 2, "decay": 0.5}],
    "fedavg": [{}, {"weighted": False}],
    "fedfa": [{}, {"alpha": 1.0, "beta": 0.0}, {"variant": "easyfl"}, {"variant": "fedlf"}],
    "fedfv": [{}, {"alpha": 0.0, "tau": 0}, {"alpha": 1 / 3, "tau": 3}, {"alpha": 1.0}],
    "fedmgda+": [{}, {"epsilon": 0.0}, {"epsilon": 1.0}, {"epsilon": 0.05, "prior": "size"}],
    "gifair": [{}, {"c": 0.0}],
    "qffl": [{}, {"q": 0.0}, {"q": 0.5, "lr": 0.05}, {"q": 10.0}],
    "term": [{}, {"t": 5.0, "weighted": True}, {"t": -1.0}, {"t": 1.0, "variant": "reference"}],
}
CASES = [(name, options) for name in adafed.rules() for options in OPTIONS.get(name, [{}])]
IDS = ["-".join([name, *(f"{key}={value}" for key, value in options.items())]) for name, options in CASES]


@pytest.fixture(params=CASES, ids=IDS)
def rule(request: pytest.FixtureRequest) -> adafed.Rule:
    name, options = request.param
    return adafed.rule(name, **options)


def cohort(seed: int, count: int = 5, length: int = 40, dtype: torch.dtype = torch.float64) -> Call:
    """A round of `count` clients with all facts."""
    generator = np.random.default_rng(seed)
    return {
        "updates": torch.from_numpy(generator.normal(size=(count, length)) + 0.3).to(dtype),
        "losses": generator.uniform(0.1, 3.0, count),
        "sizes": generator.integers(10, 500, count).astype(float),
        "accuracies": generator.uniform(0.1, 0.9, count),
        "clients": [f"{k}" for k in generator.permutation(20)[:count]],
        "local_lr": 0.1,
    }


def reordered(call: Call, order: list[int]) -> Call:
    """The same clients, or some of them, in another order."""
    facts = {name: np.asarray(call[name])[order] for name in ("losses", "sizes", "accuracies")}
    return call | facts | {"updates": call["updates"][order], "clients": [call["clients"][k] for k in order]}


def needed(rule: adafed.Rule, call: Call) -> Call:
    """Without the facts that the rule does not ask for."""
    facts = {"losses", "sizes", "accuracies", "local_lr"}
    return {name: value for name, value in call.items() if name not in facts or name in rule.needs}


def finite(outcome: adafed.Aggregate) -> None:
    kept = [k for k, rate in enumerate(outcome.diagnostics.rates) if not np.isnan(rate)]
    assert outcome.direction.isfinite().all()
    assert np.isfinite(outcome.coefficients).all()
    assert np.isfinite(outcome.diagnostics.rates[kept]).all()
    assert len(kept) + len(outcome.diagnostics.dropped) == len(outcome.coefficients)
    assert np.isfinite(outcome.diagnostics.norm)
    assert np.isfinite(outcome.diagnostics.mean_norm)
    json.dumps(outcome.state.numbers, allow_nan=False)


def same(one: torch.Tensor, other: torch.Tensor, tolerance: float = 1e-9) -> None:
    assert float((one - other).norm()) <= tolerance * max(float(one.norm()), 1e-300)


def test_direction_and_diagnostics_follow_from_the_coefficients(rule: adafed.Rule) -> None:
    call = cohort(0)
    outcome = adafed.aggregate(rule, **call)
    expected = torch.from_numpy(outcome.coefficients) @ call["updates"]
    same(outcome.direction, expected, 1e-12)
    np.testing.assert_allclose(outcome.diagnostics.rates, (call["updates"] @ expected).numpy(), rtol=1e-9, atol=1e-12)
    assert outcome.diagnostics.norm == pytest.approx(float(expected.norm()))
    assert outcome.diagnostics.mean_norm == pytest.approx(float(call["updates"].mean(dim=0).norm()))
    assert outcome.diagnostics.negative == int((outcome.coefficients < 0).sum())
    assert (outcome.diagnostics.condition is not None) == ("gram" in rule.needs)
    assert outcome.diagnostics.dropped == {}


def test_order_of_the_clients_does_not_matter(rule: adafed.Rule) -> None:
    """Over three rounds, so that state is included: each client keeps its coefficient."""
    state, other = None, None
    for round_ in (1, 2, 3):
        call = cohort(round_, count=6)
        order = np.random.default_rng(round_).permutation(6).tolist()
        outcome = adafed.aggregate(rule, **call, round=round_, state=state)
        shuffled = adafed.aggregate(rule, **reordered(call, order), round=round_, state=other)
        np.testing.assert_allclose(shuffled.coefficients, outcome.coefficients[order], rtol=1e-8, atol=1e-11)
        same(outcome.direction, shuffled.direction)
        state, other = outcome.state, shuffled.state


def test_ties_are_broken_by_client(rule: adafed.Rule) -> None:
    call = cohort(11, count=6) | {"losses": np.full(6, 0.7)}
    order = [3, 1, 5, 0, 4, 2]
    outcome, shuffled = adafed.aggregate(rule, **call), adafed.aggregate(rule, **reordered(call, order))
    np.testing.assert_allclose(shuffled.coefficients, outcome.coefficients[order], rtol=1e-8, atol=1e-11)


EXTREMES: dict[str, Call] = {
    "zero losses": {"losses": np.zeros(4)},
    "one zero loss": {"losses": np.array([0.0, 1.0, 2.0, 3.0])},
    "tiny losses": {"losses": np.full(4, 1e-300)},
    "denormal losses": {"losses": np.full(4, 5e-324)},
    "huge losses": {"losses": np.full(4, 1e300)},
    "losses of all sizes": {"losses": np.array([0.0, 1e-300, 1.0, 1e300])},
    "largest losses": {"losses": np.array([1.7e308, -1.7e308, 1.7e308, 0.0])},
    "equal losses": {"losses": np.full(4, 0.3)},
    "negative losses": {"losses": np.array([-1.0, -2.0, 0.5, -1e-9])},
    "no accuracy": {"accuracies": np.zeros(4)},
    "full accuracy": {"accuracies": np.ones(4)},
    "accuracies 0 and 1": {"accuracies": np.array([0.0, 1.0, 0.0, 1.0])},
    "accuracy 1 against 0": {"accuracies": np.array([1.0, 0.0, 0.0, 0.0])},
    "sizes apart": {"sizes": np.array([1.0, 1e12, 3.0, 1.0])},
    "short updates": {"scale": 1e-15},
    "long updates": {"scale": 1e15},
    "a long update": {"scale": torch.tensor([[1.0], [1e12], [1.0], [1.0]])},
    "a short update": {"scale": torch.tensor([[1.0], [1e-8], [1.0], [1.0]])},
    "a negligible update": {"scale": torch.tensor([[1.0], [1e-13], [1.0], [1.0]])},
    "zero updates": {"scale": 0.0},
    "a zero update": {"scale": torch.tensor([[1.0], [0.0], [1.0], [1.0]])},
    "opposite updates": {"updates": lambda u: torch.stack([u[0], -u[0], u[1], -u[1]])},
    "equal updates": {"updates": lambda u: u[:1].expand(4, -1).clone()},
    "parallel updates": {"updates": lambda u: torch.stack([u[0], 1.1 * u[0], 0.3 * u[0], 7 * u[0]])},
    "nearly parallel updates": {"updates": lambda u: u[0] + 1e-6 * u},
    "one dimension": {"updates": lambda u: u[:, :1]},
    "cancelling in one dimension": {"updates": lambda u: torch.tensor([[0.1], [-0.3], [0.7], [-0.5]], dtype=u.dtype)},
    "two dimensions": {"updates": lambda u: u[:, :2]},
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
def test_finite_input_gives_finite_output(rule: adafed.Rule, dtype: torch.dtype) -> None:
    for name, change in EXTREMES.items():
        call = cohort(4, count=4, dtype=dtype)
        call |= {key: value for key, value in change.items() if key not in ("scale", "updates")}
        call["updates"] = change.get("updates", lambda u: u)(call["updates"]) * change.get("scale", 1.0)
        call["updates"] = call["updates"].to(dtype)
        state = None
        for round_ in (1, 2):
            outcome = adafed.aggregate(rule, **call, round=round_, state=state)
            try:
                finite(outcome)
            except (AssertionError, ValueError) as error:
                raise AssertionError(f"{name}, round {round_}: {outcome}") from error
            state = outcome.state


def test_single_client_moves_along_its_update(rule: adafed.Rule) -> None:
    call = cohort(5, count=1)
    outcome = adafed.aggregate(rule, **call)
    finite(outcome)
    assert outcome.coefficients[0] > 0
    same(outcome.direction, outcome.coefficients[0] * call["updates"][0], 1e-14)


def through_json(state: adafed.RuleState) -> adafed.RuleState:
    """As a checkpoint keeps it: JSON and one tensor."""
    numbers, memory = json.loads(json.dumps([state.numbers, state.memory], allow_nan=False))
    vectors = None if state.vectors is None else torch.from_numpy(state.vectors.numpy().copy())
    return adafed.RuleState(numbers, tuple((client, round_) for client, round_ in memory), vectors)


def test_restored_state_continues_with_the_same_bits(rule: adafed.Rule) -> None:
    state: adafed.RuleState | None = None
    restored: adafed.RuleState | None = None
    for round_ in (1, 2, 3, 4):
        call = cohort(20 + round_, count=3 + round_ % 3)
        outcome = adafed.aggregate(rule, **call, round=round_, federation=20, state=state)
        again = adafed.aggregate(rule, **call, round=round_, federation=20, state=restored)
        assert torch.equal(outcome.direction, again.direction)
        assert np.array_equal(outcome.coefficients, again.coefficients)
        assert outcome.state.numbers == again.state.numbers
        state, restored = outcome.state, through_json(again.state)


def test_answer_is_pure(rule: adafed.Rule) -> None:
    """Neither the updates, nor the facts, nor the state that is passed in change; the same call gives the same bits."""
    first = adafed.aggregate(rule, **cohort(6))
    call = cohort(7)
    before = json.dumps([first.state.numbers, first.state.memory])
    outcome = adafed.aggregate(rule, **call, round=2, state=first.state)
    assert json.dumps([first.state.numbers, first.state.memory]) == before
    untouched = cohort(7)
    assert torch.equal(call["updates"], untouched["updates"])
    assert np.array_equal(call["losses"], untouched["losses"])
    assert torch.equal(outcome.direction, adafed.aggregate(rule, **call, round=2, state=first.state).direction)


@pytest.mark.parametrize("factor", [1e-6, 3.0, 1e6])
def test_scaling_law(rule: adafed.Rule, factor: float) -> None:
    """Updates times c move d by c^degree, over two rounds; a rule without such a law does not even come near one."""
    if rule.degree is None:
        call = cohort(31)
        plain = adafed.aggregate(rule, **call).direction
        larger = adafed.aggregate(rule, **call | {"updates": factor * call["updates"]}).direction
        lawful = [float((larger / factor**power - plain).norm()) < 1e-9 * float(plain.norm()) for power in (0, 1)]
        assert not any(lawful) or rule.options().get("q") == 0.0
        return
    state, other = None, None
    for round_ in (1, 2):
        call = cohort(30 + round_)
        outcome = adafed.aggregate(rule, **call, round=round_, state=state)
        scaled = adafed.aggregate(rule, **call | {"updates": factor * call["updates"]}, round=round_, state=other)
        same(outcome.direction, scaled.direction / factor**rule.degree)
        state, other = outcome.state, scaled.state


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


def bad_update(call: Call) -> None:
    call["updates"][2, 5] = float("nan")


def infinite_update(call: Call) -> None:
    call["updates"][2, 5] = float("-inf")


def bad_loss(call: Call) -> None:
    call["losses"][2] = float("nan")


def infinite_loss(call: Call) -> None:
    call["losses"][2] = float("inf")


@pytest.mark.parametrize("spoil", [bad_update, infinite_update, bad_loss, infinite_loss])
def test_dropped_clients_leave_the_rest_as_if_they_had_not_come(
    rule: adafed.Rule, spoil: Callable[[Call], None]
) -> None:
    state, other = None, None
    for round_ in (1, 2):
        call = cohort(40 + round_)
        spoil(call)
        outcome = adafed.aggregate(rule, **call, round=round_, state=state)
        rest = [0, 1, 3, 4]
        without = adafed.aggregate(rule, **reordered(call, rest), round=round_, state=other)
        assert list(outcome.diagnostics.dropped) == [call["clients"][2]]
        assert outcome.coefficients[2] == 0.0
        assert np.isnan(outcome.diagnostics.rates[2])
        finite(outcome)
        np.testing.assert_allclose(outcome.coefficients[rest], without.coefficients, rtol=1e-12)
        same(outcome.direction, without.direction, 1e-12)
        assert outcome.state.numbers == without.state.numbers
        assert outcome.state.memory == without.state.memory
        state, other = outcome.state, without.state


def test_missing_fact_is_told_in_a_sentence(rule: adafed.Rule) -> None:
    for need in rule.needs - {"gram", "norms"}:
        call = needed(rule, cohort(9))
        del call[need]
        with pytest.raises(adafed.AdafedError, match=f"rule .* needs {need}; pass {need}="):
            adafed.aggregate(rule, **call)


def test_facts_that_are_not_needed_change_nothing(rule: adafed.Rule) -> None:
    call = cohort(10)
    outcome = adafed.aggregate(rule, **needed(rule, call))
    others = {"losses": call["losses"][::-1], "sizes": [-1.0] * 5, "accuracies": [2.0, None, 0, 1, 5], "local_lr": -1.0}
    changed = {fact: values for fact, values in others.items() if fact not in rule.needs}
    again = adafed.aggregate(rule, **call | changed)
    assert torch.equal(outcome.direction, again.direction)
    assert again.diagnostics.dropped == {}


def test_clients_need_no_names(rule: adafed.Rule) -> None:
    call = cohort(12)
    del call["clients"]
    unnamed = adafed.aggregate(rule, **call)
    named = adafed.aggregate(rule, **call, clients=[0, 1, 2, 3, 4])
    assert torch.equal(unnamed.direction, named.direction)


def test_is_described_for_people_and_machines(rule: adafed.Rule) -> None:
    assert rule.summary
    assert str(rule).startswith(rule.name)
    assert adafed.rule(rule.name, **json.loads(json.dumps(rule.options()))) == rule
    assert set(rule.grid) <= set(rule.options())
    for option, values in rule.grid.items():
        for value in values:
            adafed.rule(rule.name, **{option: value})  # type: ignore[arg-type]
    for preset in rule.presets:
        adafed.rule(rule.name, preset=preset)
