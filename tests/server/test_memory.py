"""The memory of the federation: what rules are shown, and that it changes no bit where nobody is to be remembered."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import adafed
from adafed import AdafedError
from adafed.algebra.hulls import simplex_point
from adafed.algebra.stored import STORAGES, Storage
from adafed.server.memory import Memory, Remember
from adafed.server.row_files import PlacedRow, RowStore

PLAIN = adafed.rule("fedavg", weighted=False)
ADAFED = adafed.rule("adafed")
NAMES = ("fedavg", "adafed", "fedfv", "term", "qffl", "afl", "fedmgda+", "fedfa", "gifair", "fcfc")
EVERY_RULE = [adafed.rule(name) for name in NAMES]


class Federation:
    """Clients who answer now and then, with all facts."""

    def __init__(self, clients: int = 12, length: int = 40, cohort: int = 4, seed: int = 0) -> None:
        self.random = np.random.default_rng(seed)
        self.clients, self.length, self.cohort = clients, length, cohort

    def rounds(self, count: int) -> Iterator[dict[str, Any]]:
        for round_ in range(1, count + 1):
            asked = np.sort(self.random.choice(self.clients, self.cohort, replace=False)).tolist()
            yield {
                "updates": torch.from_numpy(self.random.normal(size=(self.cohort, self.length)) + 0.3),
                "losses": self.random.uniform(0.2, 3.0, self.cohort),
                "sizes": self.random.integers(10, 90, self.cohort).astype(float),
                "accuracies": self.random.uniform(0.2, 0.9, self.cohort),
                "clients": asked,
                "round": round_,
                "local_lr": 0.1,
                "federation": self.clients,
            }


def trained(rule: adafed.Rule, calls: list[dict[str, Any]], **more: Any) -> list[adafed.Aggregate]:
    found: list[adafed.Aggregate] = []
    for call in calls:
        found.append(adafed.aggregate(rule, **call, **more, state=found[-1].state if found else None))
    return found


def fields(call: dict[str, Any]) -> dict[int, int]:
    return {client: k for k, client in enumerate(call["clients"])}


# Nothing to remember


@pytest.mark.parametrize("rule", EVERY_RULE, ids=str)
def test_everyone_in_every_round_changes_no_bit(rule: adafed.Rule) -> None:
    calls = list(Federation(clients=5, cohort=5).rounds(4))
    for one, other in zip(trained(rule, calls), trained(rule, calls, memory="all"), strict=True):
        if rule.remembers:  # FedFV's own window: everyone is here, so nobody is in it
            assert np.array_equal(one.coefficients, other.coefficients)
        assert torch.equal(one.direction, other.direction)
        assert one.state.numbers == other.state.numbers
        assert not other.remembered


@pytest.mark.parametrize("rule", EVERY_RULE, ids=str)
def test_a_memory_of_no_rounds_is_none(rule: adafed.Rule) -> None:
    calls = list(Federation().rounds(4))
    for one, other in zip(trained(rule, calls), trained(rule, calls, memory=0), strict=True):
        assert torch.equal(one.direction, other.direction)
        assert one.state.memory == other.state.memory


# What is shown


def test_fedavg_with_memory_is_mifa() -> None:
    """Gu et al. 2021: d is the mean of everybody's latest update; of those heard, until everyone was."""
    calls, latest = list(Federation().rounds(25)), {}
    for call, outcome in zip(calls, trained(PLAIN, calls, memory="all"), strict=True):
        latest |= {client: call["updates"][k] for client, k in fields(call).items()}
        assert torch.allclose(outcome.direction, sum(latest.values()) / len(latest), atol=1e-13)
        assert set(outcome.remembered) == {str(client) for client in latest} - {str(one) for one in call["clients"]}


def test_fedvarp_is_its_published_recursion() -> None:
    calls, latest = list(Federation().rounds(25)), {}
    nothing = torch.zeros(40, dtype=torch.float64)
    for memory in (0, "all"):
        latest = {}
        for call, outcome in zip(calls, trained(adafed.rule("fedvarp"), calls, memory=memory), strict=True):
            new = {client: call["updates"][k] for client, k in fields(call).items()}
            change = sum((g - latest.get(client, nothing) for client, g in new.items()), nothing) / len(new)
            expected = change + sum(latest.values(), nothing) / 12
            assert torch.allclose(outcome.direction, expected, atol=1e-13)
            latest |= new


def test_adafed_takes_its_point_over_everyone_heard() -> None:
    calls, latest, told = list(Federation().rounds(15)), {}, {}
    rule = adafed.rule("adafed", gamma=2.0, scale="mean")
    for call, outcome in zip(calls, trained(rule, calls, memory="all"), strict=True):
        latest |= {client: call["updates"][k] for client, k in fields(call).items()}
        told |= {client: call["losses"][k] for client, k in fields(call).items()}
        rows = torch.stack(list(latest.values())).numpy()
        weights = np.array([told[client] for client in latest]) ** 2
        weights /= weights.mean()
        expected = simplex_point(rows @ rows.T, weights) @ rows
        assert np.allclose(outcome.direction.numpy(), expected, atol=1e-12)
        rates = rows @ outcome.direction.numpy()
        assert (rates >= weights * (expected @ expected) - 1e-9).all()


def test_a_window_of_rounds() -> None:
    calls = list(Federation(clients=40).rounds(8))
    for call, outcome in zip(calls, trained(PLAIN, calls, memory=2), strict=True):
        recent = [one for one in calls if call["round"] - 2 <= one["round"] <= call["round"]]
        heard = {client for one in recent for client in one["clients"]}
        assert set(outcome.remembered) == {str(client) for client in heard - set(call["clients"])}


def test_what_was_told_is_remembered_with_its_age() -> None:
    """TERM over everyone heard, with losses that count less by the round."""
    calls, told = list(Federation().rounds(10)), {}
    for call, outcome in zip(
        calls, trained(adafed.rule("term", t=1.0), calls, memory=Remember("all", 0.9)), strict=True
    ):
        told |= {client: (call["losses"][k], call["round"]) for client, k in fields(call).items()}
        weights = {client: np.exp(loss * 0.9 ** (call["round"] - then)) for client, (loss, then) in told.items()}
        total = sum(weights.values())
        for client, coefficient in outcome.remembered.items():
            assert coefficient == pytest.approx(weights[int(client)] / total)
        for client, k in fields(call).items():
            assert outcome.coefficients[k] == pytest.approx(weights[client] / total)


def test_fedfv_over_everyone_has_no_external_conflicts() -> None:
    """Its window tau is of clients that are not shown anyway; with a memory of all there are none."""
    calls = list(Federation().rounds(6))
    with_tau = trained(adafed.rule("fedfv", tau=3), calls, memory="all")
    without = trained(adafed.rule("fedfv", tau=0), calls, memory="all")
    assert all(torch.equal(one.direction, other.direction) for one, other in zip(with_tau, without, strict=True))


def test_the_oldest_go_first() -> None:
    calls = list(Federation(clients=40).rounds(8))
    last = trained(PLAIN, calls, memory=Remember("all", most=10))[-1]
    assert len(last.state.memory) == 10
    assert min(round_ for _, round_ in last.state.memory) >= 5


def test_a_dropped_update_is_never_remembered() -> None:
    calls = list(Federation(clients=4).rounds(2))
    bad = calls[1]["updates"].clone()
    bad[1, 3] = float("nan")
    first, second = trained(ADAFED, [calls[0], calls[1] | {"updates": bad}], memory="all")
    client = str(calls[1]["clients"][1])
    assert list(second.diagnostics.dropped) == [client]
    assert (client, 1) in second.state.memory  # its last good one, which is shown meanwhile
    assert client in second.remembered
    assert np.isfinite(second.state.known.losses).all()
    assert torch.equal(first.state.vectors[1], calls[0]["updates"][1])  # type: ignore[index]


def test_a_bounded_update_is_remembered_as_the_rule_saw_it() -> None:
    from adafed.server_rules.guards import Guard, Verdict

    class Halved(Guard):
        def judge(self, facts: Any, needs: Any) -> Verdict:
            return Verdict(facts, np.full(facts.count, 0.5))

    calls = list(Federation().rounds(3))
    plain = trained(ADAFED, [call | {"updates": call["updates"] / 2} for call in calls], memory="all")
    halved = trained(ADAFED, calls, memory="all", guards=(Halved(),))
    for one, other in zip(plain, halved, strict=True):
        assert torch.allclose(one.direction, other.direction, atol=1e-14)


# Its Gram matrix


@pytest.mark.parametrize("storage", STORAGES)
def test_the_kept_matrix_is_that_of_the_kept_rows(storage: Storage) -> None:
    calls = list(Federation(length=900).rounds(12))
    if storage != "float32":
        calls = [call | {"updates": call["updates"].float()} for call in calls]
    known = trained(ADAFED, calls, memory=Remember("all", store=RowStore(storage)))[-1].state.known
    rows = torch.stack([row if isinstance(row, torch.Tensor) else row.tensor() for row in known.rows]).double()
    assert known.gram is not None
    assert np.allclose(known.gram, (rows @ rows.T).numpy(), rtol=1e-6, atol=1e-4)


def test_what_storage_loses_is_little() -> None:
    calls = [call | {"updates": call["updates"].float()} for call in Federation(length=5000).rounds(12)]
    exact = trained(ADAFED, calls, memory="all")[-1].direction
    for storage, most in (("bfloat16", 0.005), ("int8", 0.02)):
        found = trained(ADAFED, calls, memory=Remember("all", store=RowStore(storage)))[-1].direction  # type: ignore[arg-type]
        assert 0 < float((found - exact).norm()) < most * float(exact.norm())


def test_products_are_made_in_float64_where_too_much_cancels() -> None:
    """Clients that nearly oppose each other: float32 products would leave d to rounding."""
    random = np.random.default_rng(0)
    base, length = random.normal(size=400_000), 400_000
    state = None
    for round_, sign in ((1, 1.0), (2, -1.0)):
        rows = torch.from_numpy((sign * base + 1e-4 * random.normal(size=(2, length)) + 1e-5).astype(np.float32))
        clients = [f"{round_}a", f"{round_}b"]
        outcome = adafed.aggregate(
            ADAFED, rows, losses=[1, 1], clients=clients, round=round_, state=state, memory="all"
        )
        state = outcome.state
    assert state is not None
    assert state.known.precise
    rows = torch.stack([row.tensor() for row in state.known.rows]).double()  # type: ignore[union-attr]
    assert state.known.gram is not None
    assert np.allclose(state.known.gram, (rows @ rows.T).numpy(), rtol=1e-12)
    assert float((rows @ outcome.direction.double()).min()) > 0


# Quadratics


class Quadratics:
    """Eight strongly convex losses of twenty numbers, whose Hessians do not commute."""

    def __init__(self) -> None:
        random = np.random.default_rng(1)
        turned = [np.linalg.qr(random.normal(size=(20, 20)))[0] for _ in range(8)]
        self.hessians = np.stack([(q * np.linspace(0.5, 2.0, 20)) @ q.T for q in turned])
        self.optima = random.normal(size=(8, 20))

    def gradients(self, point: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return np.asarray(np.einsum("kij,kj->ki", self.hessians, point - self.optima))

    def losses(self, point: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return np.asarray(0.5 * np.einsum("ki,ki->k", point - self.optima, self.gradients(point)))

    def smallest(self, point: np.ndarray[Any, Any]) -> float:
        """The length of the smallest convex combination of all gradients: 0 where the point is Pareto-stationary."""
        rows = self.gradients(point)
        return float(np.linalg.norm(simplex_point(rows @ rows.T, np.ones(8)) @ rows))

    def trained(self, memory: Any, rounds: int = 1200, rate: float = 0.1) -> list[float]:
        draw, point, state, found = np.random.default_rng(5), np.ones(20), None, []
        rule = adafed.rule("adafed", gamma=1.0, scale="mean")
        start = self.smallest(point)
        for round_ in range(1, rounds + 1):
            asked = np.sort(draw.choice(8, 2, replace=False))
            updates = torch.from_numpy(self.gradients(point)[asked])
            call: dict[str, Any] = {"losses": self.losses(point)[asked], "clients": asked, "round": round_}
            outcome = adafed.aggregate(rule, updates, **call, state=state, memory=memory)
            state, point = outcome.state, point - rate * outcome.direction.numpy()
            found.append(self.smallest(point) / start)
        return found


def test_with_memory_training_comes_to_rest_where_nobody_can_gain() -> None:
    quadratics = Quadratics()
    assert max(quadratics.trained("all")[-100:]) < 1e-3
    assert float(np.median(quadratics.trained(0)[-400:])) > 1e-2


# Mistakes, and checkpoints


@pytest.mark.parametrize("memory", [-1, "some", 1.5, True])
def test_a_wrong_length_is_told(memory: Any) -> None:
    with pytest.raises(
        AdafedError, match=r'^memory is .*; it must be a number of rounds, "all", "auto" or a Remember$'
    ):
        adafed.aggregate(PLAIN, torch.ones(1, 3), memory=memory)
    with pytest.raises(AdafedError, match=r'^memory.rounds is .*; it must be a number of rounds, or "all"$'):
        Remember(memory)


def test_a_wrong_discount_is_told() -> None:
    with pytest.raises(AdafedError, match=r"memory.discount is 0.0; it must be above 0 and at most 1"):
        Remember("all", discount=0.0)


def test_a_memory_that_is_not_asked_for_again_is_told() -> None:
    state = adafed.aggregate(PLAIN, torch.ones(2, 3), memory="all").state
    with pytest.raises(AdafedError, match=r"state remembers 2 updates, and neither rule fedavg nor memory= looks back"):
        adafed.aggregate(PLAIN, torch.ones(2, 3), round=2, state=state)


def test_updates_of_another_length_are_told() -> None:
    state = adafed.aggregate(PLAIN, torch.ones(2, 3), memory="all").state
    with pytest.raises(AdafedError, match="a remembered update has length 3 and the updates have 4"):
        adafed.aggregate(PLAIN, torch.ones(1, 4), clients=["x"], round=2, state=state, memory="all")
    with pytest.raises(AdafedError, match="float32 on cpu and the updates are float64 on cpu"):
        adafed.aggregate(PLAIN, torch.ones(1, 3).double(), clients=["x"], round=2, state=adafed.RuleState(
            {}, Memory.of([("a", 1)], torch.ones(1, 3))), memory="all")  # fmt: skip


@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("in_file", [False, True])
def test_saved_and_restored_goes_on_to_the_same_bits(storage: Storage, in_file: bool, tmp_path: Path) -> None:
    calls = [call | {"updates": call["updates"].float()} for call in Federation(length=700).rounds(12)]
    path = tmp_path / "rows" if in_file else None
    whole = trained(ADAFED, calls, memory=Remember("all", store=RowStore(storage, path=path)))
    tensors, numbers = whole[5].state.known.packed()
    assert ("places" in numbers) == in_file
    # Another process, which has the file as it stood: nothing that round 6 names was overwritten since.
    store = RowStore(storage, path=tmp_path / "again" if in_file else None)
    if in_file:
        first = trained(ADAFED, calls[:6], memory=Remember("all", store=RowStore(storage, path=tmp_path / "again")))
        tensors, numbers = first[-1].state.known.packed()
    restored = adafed.RuleState(whole[5].state.numbers, Memory.unpacked(tensors, numbers, 700, store))
    for call, expected in zip(calls[6:], whole[6:], strict=True):
        found = adafed.aggregate(ADAFED, **call, state=restored, memory=Remember("all", store=store))
        assert torch.equal(found.direction, expected.direction)
        restored = found.state


def test_fedfa_counts_the_rounds_that_a_client_was_there_in() -> None:
    rule, state = adafed.rule("fedfa"), None
    for t, client in enumerate(["a", "b", "b", "b"], 1):
        out = adafed.aggregate(
            rule, torch.eye(2)[:1], accuracies=[0.5], clients=[client], round=t, state=state, memory="all"
        )
        state = out.state
    assert state is not None
    assert state.numbers["counts"] == {"a": 1, "b": 3}


def test_a_state_of_this_round_or_a_later_one_is_refused() -> None:
    rule, updates = adafed.rule("fedfv", tau=1), torch.eye(3)
    first = adafed.aggregate(rule, updates, losses=[1.0, 2.0, 3.0], round=2)
    for t in (1, 2):
        with pytest.raises(
            AdafedError, match=rf"^round is {t} and state remembers updates of round 2; count on, as in"
        ):
            adafed.aggregate(rule, updates, losses=[1.0, 2.0, 3.0], round=t, state=first.state)


def test_rows_of_a_file_that_is_gone_with_the_process_are_packed_whole() -> None:
    rule, remember = adafed.rule("fedavg", weighted=False), Remember("all", store=RowStore(budget=1))
    state = adafed.aggregate(rule, torch.eye(3), clients=["a", "b", "c"], memory=remember).state
    tensors, numbers = state.known.packed()
    assert "places" not in numbers
    assert torch.equal(tensors["memory"], torch.eye(3))
    restored = Memory.unpacked(tensors, numbers, 3, None)
    assert [row.tolist() for row in restored.whole] == torch.eye(3).tolist()


@pytest.mark.parametrize("scale", [1e-20, 1e-3, 1e3, 1e18, 1e30])
def test_updates_of_any_size_are_weighed_alike(scale: float) -> None:
    """Products with remembered rows leave float32's range before the rows do; d is long enough for float32 passes."""
    random = np.random.default_rng(0)
    sent = torch.from_numpy((random.normal(size=(8, 140_000)) + random.normal(size=140_000)).astype(np.float32))
    losses, found = [1.0, 2.0, 0.5, 0.7], []
    for size in (1.0, scale):
        calls = [
            {"updates": sent[:4] * size, "losses": losses, "clients": [0, 1, 2, 3], "round": 1},
            {"updates": sent[4:] * size, "losses": losses, "clients": [3, 4, 5, 6], "round": 2},
        ]
        found.append(trained(ADAFED, calls, memory="auto")[-1])
    np.testing.assert_allclose(found[0].coefficients, found[1].coefficients, rtol=1e-3, atol=1e-6)
    assert found[0].remembered.keys() == found[1].remembered.keys() == {"0", "1", "2"}


def test_one_update_out_of_all_proportion_is_bounded_beside_a_memory_too() -> None:
    random = np.random.default_rng(0)
    sent = torch.from_numpy((random.normal(size=(8, 140_000)) + random.normal(size=140_000)).astype(np.float32))
    sent[5] *= 1e37
    calls = [
        {"updates": sent[:4], "losses": [1.0, 2.0, 0.5, 0.7], "clients": [0, 1, 2, 3], "round": 1},
        {"updates": sent[4:], "losses": [1.0, 2.0, 0.5, 0.7], "clients": [4, 5, 6, 7], "round": 2},
    ]
    found = trained(ADAFED, calls, memory="all", guards=("diverged",))[-1]
    assert list(found.diagnostics.bounded) == ["5"]
    assert 0.0 < found.diagnostics.norm < 1e4


def test_an_update_that_is_bounded_by_many_decades_is_not_remembered_as_zero() -> None:
    sent = 1e-12 * torch.from_numpy(np.random.default_rng(0).normal(size=(5, 40)) + 0.5).float()
    sent[2] = 1e47 * sent[2].double()  # 1e35
    found = adafed.aggregate(PLAIN, sent, sizes=[1.0] * 5, memory="all", guards=("lengths",))
    assert list(found.diagnostics.bounded) == ["2"]
    rows = [row if isinstance(row, torch.Tensor) else row.tensor() for row in found.state.known.whole]
    lengths = torch.stack([row.double().norm() for row in rows])
    assert lengths.min() > 0.1 * lengths.median()


def test_what_is_remembered_already_counts_towards_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    made = RowStore.__init__
    monkeypatch.setattr(RowStore, "__init__", lambda self, **given: made(self, budget=2 * 4000, **given))
    state = None
    for t in range(1, 5):
        state = adafed.aggregate(
            PLAIN, torch.ones(1, 1000), clients=[t], round=t, state=state, memory="all"
        ).state  # fmt: skip
    assert [isinstance(row, PlacedRow) for row in state.known.rows] == [False, False, True, True]


@pytest.mark.parametrize("name", ["adafed", "qffl"])
def test_a_memory_of_another_rule_is_shown_as_far_as_it_fits(name: str) -> None:
    """FedCorr's first stage has another rule: it asks for no lengths, and keeps updates of zero."""
    facts: dict[str, Any] = {"losses": [1.0, 2.0], "sizes": [1, 2], "local_lr": 0.1, "memory": "all"}
    updates = torch.randn(2, 6, generator=torch.Generator().manual_seed(1))
    updates[0] = 0.0
    first = adafed.aggregate(adafed.rule("fedavg"), updates, clients=["a", "b"], **facts)
    fresh = torch.randn(2, 6, generator=torch.Generator().manual_seed(2))
    state = adafed.RuleState(adafed.rule(name).initial_state(), first.state.known)
    out = adafed.aggregate(adafed.rule(name), fresh, clients=["c", "d"], round=2, state=state, **facts)
    assert set(out.remembered) == ({"b"} if name == "adafed" else set())


@pytest.mark.parametrize("name", ["adafed", "fedmdfg", "fedavg", "fedvarp"])
@pytest.mark.parametrize(("before", "now"), [(5, 6), (6, 5)])
def test_a_state_of_another_model_is_told(name: str, before: int, now: int) -> None:
    facts: dict[str, Any] = {"losses": [1.0, 2.0], "sizes": [1, 2], "memory": "all"}
    rule = adafed.rule(name)
    state = adafed.aggregate(rule, torch.randn(2, before), clients=[0, 1], **facts).state
    with pytest.raises(AdafedError, match=f"a remembered update has length {before} and the updates have {now}"):
        adafed.aggregate(rule, torch.randn(2, now), clients=[2, 3], round=2, state=state, **facts)
