"""The public call on everything a client or a caller can get wrong; the contract tests cover what goes right."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

import adafed
from adafed import AdafedError
from adafed.errors import NoClientLeft
from adafed.server.memory import Memory
from adafed.server_rules.base import Answer, Facts, Numbers

NAN, INF = float("nan"), float("inf")
ADAFED, FEDAVG, FEDFA = adafed.rule("adafed"), adafed.rule("fedavg"), adafed.rule("fedfa")
PLAIN = adafed.rule("fedavg", weighted=False)


def updates(count: int = 4) -> torch.Tensor:
    return torch.randn(count, 9, generator=torch.Generator().manual_seed(count), dtype=torch.float64)


def changed(k: int, column: int, value: float) -> torch.Tensor:
    found = updates()
    found[k, column] = value
    return found


def test_good_clients_are_not_dropped() -> None:
    outcome = adafed.aggregate(ADAFED, updates(), losses=[1, 2, 3, 4])
    assert outcome.diagnostics.dropped == {}
    assert outcome.diagnostics.hull == "simplex"
    assert adafed.aggregate(PLAIN, updates()).diagnostics.hull is None


@pytest.mark.parametrize("rule", [ADAFED, PLAIN])
@pytest.mark.parametrize("value", [NAN, INF, -INF])
def test_non_finite_update(rule: adafed.Rule, value: float) -> None:
    outcome = adafed.aggregate(rule, changed(1, 3, value), losses=[1, 2, 3, 4], clients=["a", "b", "c", "d"])
    assert outcome.diagnostics.dropped == {"b": "update has a non-finite value"}
    assert outcome.direction.isfinite().all()


@pytest.mark.parametrize("rule", [ADAFED, PLAIN])
@pytest.mark.parametrize(("loss", "told"), [(NAN, "nan"), (INF, "inf"), (-INF, "-inf"), (None, "nan")])
def test_non_finite_loss(rule: adafed.Rule, loss: float | None, told: str) -> None:
    outcome = adafed.aggregate(rule, updates(), losses=[1.0, loss, 2.0, 3.0])
    assert outcome.diagnostics.dropped == {"1": f"loss is {told}"}


def test_zero_update_costs_the_round_only_under_rules_that_solve() -> None:
    rows = updates()
    rows[2] = 0.0
    outcome = adafed.aggregate(ADAFED, rows, losses=[1, 2, 3, 4])
    assert outcome.diagnostics.dropped == {"2": "update is zero"}
    averaged = adafed.aggregate(PLAIN, rows)
    assert averaged.diagnostics.dropped == {}
    np.testing.assert_allclose(averaged.coefficients, 0.25)


def test_negligible_update() -> None:
    rows = updates()
    rows[2] *= 1e-12
    outcome = adafed.aggregate(ADAFED, rows, losses=[1, 2, 3, 4])
    assert list(outcome.diagnostics.dropped) == ["2"]
    assert "negligible" in outcome.diagnostics.dropped["2"]
    assert outcome.diagnostics.norm > 1e-3
    rows[2] *= 1e6
    assert adafed.aggregate(ADAFED, rows, losses=[1, 2, 3, 4]).diagnostics.dropped == {}


@pytest.mark.parametrize("size", [0.0, -3.0, NAN, INF, None])
def test_useless_sample_count(size: float | None) -> None:
    outcome = adafed.aggregate(FEDAVG, updates(), sizes=[10, size, 10, 20])
    assert list(outcome.diagnostics.dropped) == ["1"]
    assert outcome.diagnostics.dropped["1"].startswith("sample count is")
    np.testing.assert_allclose(outcome.coefficients, [0.25, 0.0, 0.25, 0.5])
    assert adafed.aggregate(PLAIN, updates(), sizes=[10, size, 10, 20]).diagnostics.dropped == {}


@pytest.mark.parametrize("accuracy", [-0.1, NAN, INF, None])
def test_useless_accuracy(accuracy: float | None) -> None:
    outcome = adafed.aggregate(FEDFA, updates(), accuracies=[0.5, accuracy, 0.5, 0.5])
    assert list(outcome.diagnostics.dropped) == ["1"]
    assert outcome.state.numbers["counts"] == {"0": 1, "2": 1, "3": 1}


def test_every_reason_is_told() -> None:
    rows = changed(0, 0, NAN)
    rows[3] = 0.0
    outcome = adafed.aggregate(adafed.rule("adafed"), rows, losses=[1.0, NAN, 1.0, 1.0])
    assert list(outcome.diagnostics.dropped) == ["0", "1", "3"]
    assert torch.allclose(outcome.direction, rows[2])
    assert np.isnan(outcome.diagnostics.rates).tolist() == [True, True, False, True]


@pytest.mark.parametrize(
    ("rule", "call", "sentence"),
    [
        (ADAFED, {"losses": [NAN, INF, None, NAN]}, "no client is left to aggregate: client 0: loss is nan"),
        (FEDAVG, {"sizes": [0, 0, 0, 0]}, "no client is left.*sample count is 0"),
        (ADAFED, {}, "rule adafed needs losses; pass losses=, one number for each client"),
        (FEDAVG, {}, "rule fedavg needs sizes"),
        (adafed.rule("qffl"), {"losses": [1, 1, 1, 1]}, "needs local_lr; pass local_lr=, the clients' learning rate"),
        (adafed.rule("qffl"), {"losses": [1, 1, 1, 1], "local_lr": 0.0}, "learning rate is 0.0; it must be a finite"),
        (adafed.rule("qffl"), {"losses": [1, 1, 1, 1], "local_lr": NAN}, "learning rate is nan; it must be a finite"),
        (ADAFED, {"losses": [1, 2, 3]}, "losses has 3 values for 4 updates"),
        (FEDAVG, {"sizes": [1, 2, 3, 4, 5]}, "sizes has 5 values for 4 updates"),
        (FEDFA, {"accuracies": [1]}, "accuracies has 1 values for 4 updates"),
        (ADAFED, {"losses": 1.0}, "losses is 1.0; give a list"),
        (ADAFED, {"losses": ["a", "b", "c", "d"]}, "losses is .*; give a list"),
        (ADAFED, {"losses": torch.ones(4, 1)}, "losses is .*; give a list"),
        (ADAFED, {"losses": np.ones((4, 1))}, "losses is .*; give a list"),
        (PLAIN, {"clients": ["a", "b", "a", "c"]}, "client a is there more than once"),
        (PLAIN, {"clients": [1, "1", 2, 3]}, "client 1 is there more than once"),
        (PLAIN, {"clients": ["a"]}, "clients has 1 ids for 4 updates"),
        (ADAFED, {"losses": iter([5, 1, 2, 3, 4])}, "losses is .*; give a list"),
        (ADAFED, {"losses": (loss for loss in [1, 2, 3, 4])}, "losses is .*; give a list"),
        (PLAIN, {"round": 0}, "round is 0; rounds count from 1"),
        (PLAIN, {"round": 1.0}, "round is 1.0; rounds count from 1, in whole numbers"),
    ],
)
def test_mistakes_are_told_in_a_sentence(rule: adafed.Rule, call: dict[str, Any], sentence: str) -> None:
    with pytest.raises(AdafedError, match=sentence):
        adafed.aggregate(rule, updates(), **call)


@pytest.mark.parametrize(
    "bad",
    [torch.zeros(0, 3), torch.zeros(3, 0), torch.zeros(3), [], [torch.ones(2), torch.ones(3)], torch.ones(2, 2).int()],
    ids=["no clients", "no parameters", "flat", "empty list", "lengths differ", "integers"],
)
def test_updates_that_are_none(bad: Any) -> None:
    with pytest.raises(AdafedError):
        adafed.aggregate(PLAIN, bad)


@pytest.mark.parametrize("rule", [ADAFED, PLAIN])
def test_all_updates_non_finite(rule: adafed.Rule) -> None:
    with pytest.raises(
        adafed.NoClientLeft, match=r"^no client is left to aggregate: client 0: update has a non-finite"
    ):
        adafed.aggregate(rule, torch.full((2, 3), NAN), losses=[1, 1])


def test_nobody_moved() -> None:
    """Zero updates from all clients are a stationary point, not a mistake: d = 0, and the state stays."""
    rule = adafed.rule("fedfv", tau=2)
    first = adafed.aggregate(rule, updates(), losses=[1, 2, 3, 4])
    zeros: dict[str, Any] = {"updates": torch.zeros(2, 9).double(), "losses": [1, 2], "clients": ["x", "y"]}
    still = adafed.aggregate(rule, **zeros, round=2, state=first.state)
    assert not still.direction.any()
    assert "stationary" in still.diagnostics.notes
    assert still.diagnostics.dropped == {"x": "update is zero", "y": "update is zero"}
    assert still.state.memory == first.state.memory
    assert not adafed.aggregate(PLAIN, torch.zeros(2, 9)).direction.any()


def test_a_remembered_update_that_cannot_be_used_is_passed_over() -> None:
    rule = adafed.rule("fedfv", tau=3)
    state = adafed.aggregate(rule, updates(), losses=[1, 2, 3, 4]).state
    vectors = state.vectors
    assert vectors is not None
    vectors[1] = 0.0
    state = adafed.RuleState(state.numbers, Memory.of(state.memory, vectors))
    call: dict[str, Any] = {"losses": [1, 2, 3, 4], "clients": "abcd", "round": 2}
    outcome = adafed.aggregate(rule, updates() + 1, **call, state=state)
    left = [0, 2, 3]
    fewer = adafed.RuleState(state.numbers, Memory.of([state.memory[i] for i in left], vectors[left]))
    assert torch.equal(outcome.direction, adafed.aggregate(rule, updates() + 1, **call, state=fewer).direction)


def test_state_must_be_the_rules_own() -> None:
    fedavg = adafed.aggregate(PLAIN, updates()).state
    fedfv = adafed.aggregate(adafed.rule("fedfv"), updates(), losses=[1, 2, 3, 4]).state
    told = (adafed.rule("afl"), fedavg, "was not made by rule afl"), (ADAFED, fedfv, "remembers 4 updates, and neither")
    for rule, state, why in told:
        with pytest.raises(AdafedError, match=f"state {why}"):
            adafed.aggregate(rule, updates(), losses=[1, 2, 3, 4], state=state)
    with pytest.raises(AdafedError, match="state has 0 vectors and names 4"):
        Memory.of(fedfv.memory, None)


@pytest.mark.parametrize(
    "losses",
    [
        np.array([1, 2, 3, 4]),
        torch.tensor([1.0, 2.0, 3.0, 4.0]),
        torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=torch.bfloat16),
        torch.tensor([1.0, 2.0, 3.0, 4.0], requires_grad=True),
        [torch.tensor(value, requires_grad=True) for value in (1.0, 2.0, 3.0, 4.0)],
        (1, np.float32(2), 3.0, np.int64(4)),
    ],
    ids=["numpy", "torch", "bfloat16", "with graph", "list with graph", "mixed"],
)
def test_facts_may_come_in_any_form(losses: Any) -> None:
    expected = adafed.aggregate(ADAFED, updates(), losses=[1.0, 2.0, 3.0, 4.0])
    assert torch.equal(adafed.aggregate(ADAFED, updates(), losses=losses).direction, expected.direction)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_direction_has_the_type_of_the_updates(dtype: torch.dtype) -> None:
    for rule in (ADAFED, PLAIN, adafed.rule("fedfv")):
        outcome = adafed.aggregate(rule, updates().to(dtype), losses=[1, 2, 3, 4])
        assert outcome.direction.dtype == dtype
        assert outcome.state.vectors is None or outcome.state.vectors.dtype == dtype


def test_numbers_sort_as_numbers() -> None:
    """Ties of the loss are broken by id: client 2 before client 10, and before any name."""
    rule = adafed.rule("gifair")
    outcome = adafed.aggregate(rule, updates(), losses=[1] * 4, sizes=[1] * 4, clients=["x", "10", "2", "a"])
    assert np.argsort(outcome.coefficients).tolist() == [2, 1, 3, 0]


class Unwritable:
    def __str__(self) -> str:
        raise RuntimeError("no text")


ODD_UPDATES: dict[str, Callable[[], Any]] = {
    "none": lambda: None,
    "number": lambda: 3,
    "word": lambda: "updates",
    "table": lambda: {0: torch.ones(3)},
    "set": lambda: {torch.ones(3)},
    "generator": lambda: (torch.ones(3) for _ in range(2)),
    "sparse": lambda: torch.eye(3).to_sparse(),
    "sparse rows": lambda: torch.eye(3).to_sparse_csr(),
    "a sparse vector": lambda: [torch.ones(3).to_sparse(), torch.ones(3)],
    "meta": lambda: torch.empty(2, 3, device="meta"),
    "a meta vector": lambda: [torch.ones(3), torch.empty(3, device="meta")],
    "complex": lambda: torch.ones(2, 3, dtype=torch.complex64),
    "whole numbers": lambda: torch.ones(2, 3, dtype=torch.int64),
    "flags": lambda: torch.ones(2, 3, dtype=torch.bool),
    "objects": lambda: np.array([[1, "a"], [2, "b"]], dtype=object),
    "structured": lambda: np.zeros(3, dtype=[("a", "f4")]),
    "swapped": lambda: np.zeros((2, 3), dtype=">f4"),
    "masked": lambda: np.ma.masked_array(np.ones((2, 3)), mask=[[0, 1, 0], [0, 0, 0]]),
    "a scalar": lambda: torch.tensor(1.0),
    "lists": lambda: [[1.0, 2.0], [3.0, 4.0]],
    "ragged": lambda: [torch.ones(3), torch.ones(4)],
    "mixed": lambda: [torch.ones(3), torch.ones(3, dtype=torch.float64)],
    "nested": lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
}


@pytest.mark.filterwarnings("ignore::UserWarning")  # torch's own of the nested tensor and of sparse rows
@pytest.mark.parametrize("odd", ODD_UPDATES)
@pytest.mark.parametrize("rule", [ADAFED, PLAIN])
def test_odd_updates_are_told(rule: adafed.Rule, odd: str) -> None:
    with pytest.raises(AdafedError):
        adafed.aggregate(rule, ODD_UPDATES[odd](), losses=[1.0, 2.0])


@pytest.mark.parametrize(
    "changes",
    [
        {"rule": "adafed"},
        {"rule": None},
        {"round": "1"},
        {"round": 1.5},
        {"round": None},
        {"round": True},
        {"round": NAN},
        {"round": 2**60},
        {"round": torch.ones(2)},
        {"clients": 4},
        {"clients": [Unwritable()] * 4},
        {"clients": torch.tensor(1)},
        {"state": {}},
        {"state": "state"},
        {"state": 3},
        {"state": adafed.RuleState(None)},
        {"state": adafed.RuleState([])},
        {"state": adafed.RuleState({}, "known")},
        {"state": adafed.RuleState({}, guards=[1])},
        {"state": adafed.RuleState({}, guards={"0 lengths": 1})},
        {"state": adafed.RuleState({}, guards={"0 lengths": {"medians": "x"}}), "guards": ["lengths"]},
        {"state": adafed.RuleState({}, guards={"0 history": {"seen": {"0": 1}}}), "guards": ["history"]},
        {"state": adafed.RuleState({}, Memory.of([("a", 1)], [7]))},
        {"rule": FEDFA, "state": adafed.RuleState({"counts": 3})},
        {"rule": FEDFA, "state": adafed.RuleState({"counts": {"1": "x"}})},
        {"rule": adafed.rule("afl"), "state": adafed.RuleState({"shares": [], "unseen": 0, "each": 0.0})},
        {"rule": adafed.rule("term"), "state": adafed.RuleState({"normaliser": None})},
        {"losses": 3.0},
        {"losses": "1234"},
        {"losses": {0: 1.0, 1: 1.0, 2: 1.0, 3: 1.0}},
        {"losses": torch.ones(4, device="meta")},
        {"losses": torch.ones(2, 2)},
        {"losses": [1.0, 2.0, 3.0, 1j]},
        {"losses": [[1.0], [2.0], [3.0], [4.0]]},
        {"local_lr": "0.1"},
        {"federation": 4.5},
        {"federation": "all"},
        {"federation": -5},
        {"federation": 3},
        {"memory": "some"},
        {"memory": np.zeros(2)},
        {"guards": 3},
        {"guards": [3]},
        {"guards": np.zeros(2)},
    ],
)
def test_wrong_types_are_told(changes: dict[str, Any]) -> None:
    call = {"rule": ADAFED, "losses": [1.0, 2.0, 3.0, 4.0], "accuracies": [0.1, 0.2, 0.3, 0.4]} | changes
    with pytest.raises(AdafedError):
        adafed.aggregate(updates=updates(), **call)


def test_numbers_of_numpy_and_torch_are_numbers() -> None:
    usual = adafed.aggregate(ADAFED, updates(), losses=[1.0, 2.0, 3.0, 4.0], round=3, local_lr=0.5, federation=9)
    odd = adafed.aggregate(
        ADAFED,
        torch._neg_view(-updates()),
        losses=torch.tensor([1.0, 2.0, 3.0, 4.0], requires_grad=True),
        round=np.int64(3),  # type: ignore[arg-type]
        local_lr=torch.tensor(0.5),  # type: ignore[arg-type]
        federation=np.int32(9),  # type: ignore[arg-type]
    )
    assert torch.equal(usual.direction, odd.direction)


@pytest.mark.parametrize("name", adafed.rules())
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_finite_in_finite_out(name: str, dtype: torch.dtype) -> None:
    """At the end of the numbers' range a sum may leave it on the way, or for good: then the round has no direction."""
    most = torch.finfo(dtype).max
    normal = torch.randn(30, 5, 8, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    cases = [torch.full((40, 4), most, dtype=dtype), torch.full((7, 4), -most, dtype=dtype)]
    cases += [(case * 0.8 * most).clamp(-most, most).to(dtype) for case in normal]
    mine = adafed.rule(name)
    for case in cases:
        count, facts = len(case), {"local_lr": 0.1, "federation": 50}
        facts |= {key: [0.5 + k / count / 4 for k in range(count)] for key in ("losses", "accuracies")}
        facts |= {"sizes": [10 + k for k in range(count)]}
        try:
            outcome = adafed.aggregate(mine, case, **facts)  # type: ignore[arg-type]
        except AdafedError:
            continue
        assert outcome.direction.isfinite().all(), case


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_equal_updates_at_the_end_of_the_range_have_themselves_as_mean(dtype: torch.dtype) -> None:
    most = torch.finfo(dtype).max
    found = adafed.aggregate(PLAIN, torch.full((40, 3), most, dtype=dtype)).direction
    assert torch.allclose(found, torch.full((3,), most, dtype=dtype), rtol=1e-6)


@dataclass(frozen=True)
class Doubling(adafed.Rule):
    """Twice the first update."""

    needs = frozenset()

    def answer(self, facts: Facts, state: Numbers) -> Answer:
        return Answer(np.array([2.0, *np.zeros(facts.count - 1)]))


def test_a_direction_out_of_range_is_refused() -> None:
    rows = torch.full((2, 3), 3e38)
    with pytest.raises(NoClientLeft, match="too large for float32"):
        adafed.aggregate(Doubling(), rows)
