"""What is still true of remembered updates, by clients that come back, and that untrue ones are not shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import adafed
from adafed import AdafedError
from adafed.algebra.stored import STORAGES, Storage
from adafed.server.memory import TRUE_ENOUGH, Memory, Remember
from adafed.server.returning import ENOUGH, WINDOW
from adafed.server.row_files import RowStore
from adafed.server.saved import DamagedState
from adafed.server_rules.guards.lengths import BoundedLengths

CLIENTS, COHORT, LENGTH = 12, 4, 300
RULES = ["adafed", "fedavg", "fedfv", "term"]


def rounds(count: int, faithful: float, seed: int = 0) -> list[dict[str, Any]]:
    """Clients with a vector of their own each, of which a share is in every update, and the rest is new each time."""
    random = np.random.default_rng(seed)
    own = random.normal(size=(CLIENTS, LENGTH))
    found = []
    for round_ in range(1, count + 1):
        asked = np.sort(random.choice(CLIENTS, COHORT, replace=False))
        new = random.normal(size=(COHORT, LENGTH))
        found.append({
            "updates": torch.from_numpy(faithful**0.5 * own[asked] + (1 - faithful) ** 0.5 * new).float(),
            "losses": random.uniform(0.2, 3.0, COHORT),
            "sizes": [10.0] * COHORT,
            "federation": CLIENTS,
            "clients": asked.tolist(),
            "round": round_,
        })  # fmt: skip
    return found


def trained(rule: str, calls: list[dict[str, Any]], memory: Any, **more: Any) -> list[adafed.Aggregate]:
    found: list[adafed.Aggregate] = []
    for call in calls:
        state = found[-1].state if found else None
        found.append(adafed.aggregate(adafed.rule(rule), **call, **more, state=state, memory=memory))
    return found


def true_shares(found: list[adafed.Aggregate]) -> list[float]:
    notes = [outcome.diagnostics.notes.get("memory", {}) for outcome in found]
    return [note["true"] for note in notes if "true" in note]


@pytest.mark.parametrize("faithful", [0.9, 0.6, 0.2])
def test_the_share_is_what_updates_of_a_client_have_in_common(faithful: float) -> None:
    shares = true_shares(trained("adafed", rounds(40, faithful), Remember("all", truth=0.01)))
    assert np.mean(shares) == pytest.approx(faithful, abs=0.06)


@pytest.mark.parametrize("rule", RULES)
def test_what_has_stayed_true_is_shown_as_if_nobody_asked(rule: str) -> None:
    calls = rounds(20, faithful=0.9)
    for one, other in zip(trained(rule, calls, "all"), trained(rule, calls, Remember("all", truth=0.5)), strict=True):
        assert torch.equal(one.direction, other.direction)
        assert one.remembered == other.remembered


@pytest.mark.parametrize("rule", RULES)
def test_what_has_not_is_hidden_and_the_round_is_as_without_a_memory(rule: str) -> None:
    calls = rounds(20, faithful=0.1)
    without, found = trained(rule, calls, 0), trained(rule, calls, Remember("all", truth=0.5))
    judged = [k for k, outcome in enumerate(found) if "true" in outcome.diagnostics.notes.get("memory", {})]
    assert judged == list(range(judged[0], 20))
    assert judged[0] <= 4  # four of twelve are drawn: the first to come back do so at once
    for k in judged:
        tau = {str(client) for client in calls[k - 1]["clients"]} if rule == "fedfv" else set()  # it looks back itself
        assert set(found[k].remembered) <= tau
        assert torch.allclose(found[k].direction, without[k].direction, atol=1e-6)
        assert "still true" in found[k].diagnostics.notes["hidden"]
        if rule != "fedfv":
            assert torch.equal(found[k].direction, without[k].direction)
    known = found[-1].state.known
    assert len(known) == CLIENTS  # they are kept all the same, to be judged by
    assert not known.coefficients[:-COHORT].any()


@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("sketch", [0, 64])
def test_it_comes_back_when_updates_stay_true_again(storage: Storage, sketch: int) -> None:
    restless, steady = rounds(12, faithful=0.0), rounds(40, faithful=1.0, seed=1)
    calls = restless + [call | {"round": call["round"] + 12} for call in steady]
    remember = Remember("all", most=6 if sketch else 0, truth=0.5, store=RowStore(storage, sketch=sketch))
    shown = [bool(outcome.remembered) for outcome in trained("adafed", calls, remember)]
    assert not shown[10]
    assert shown[-1]


def test_nothing_is_decided_by_a_few() -> None:
    calls = rounds(30, faithful=0.0)
    for call in calls:
        call["clients"] = [f"{client} of {call['round']}" for client in call["clients"]]  # always others
    assert not true_shares(trained("adafed", calls, Remember("all", truth=0.9)))
    for call in calls[: ENOUGH - 1]:
        call["clients"][0] = "again"
    found = trained("adafed", calls[: ENOUGH - 1], Remember("all", truth=0.9))
    assert not true_shares(found)
    assert found[-1].remembered
    assert found[-1].state.known.returned.clients == pytest.approx(
        sum((1 - 1 / WINDOW) ** k for k in range(ENOUGH - 2))
    )


def test_no_client_counts_for_more_than_another() -> None:
    """A long update that comes back reversed, and one that comes back a thousand times as long, count 0 and 1."""
    calls = rounds(2, faithful=1.0)
    calls[1] |= {"clients": calls[0]["clients"], "updates": calls[0]["updates"].clone()}
    calls[1]["updates"][0] *= -1e4
    calls[1]["updates"][1] *= 1e3
    known = trained("fedavg", calls, Remember("all", truth=0.5))[-1].state.known
    assert known.returned.true == pytest.approx(3.0, abs=1e-5)
    assert known.returned.clients == 4.0


def test_it_is_judged_by_what_guards_leave() -> None:
    """A guard that bounds a client's second update to the length of the others bounds what it is judged by too."""
    calls = rounds(2, faithful=1.0)
    calls[1] |= {"clients": calls[0]["clients"], "updates": calls[0]["updates"].clone() / 8}
    calls[1]["updates"][0] *= 80
    plain = trained("fedavg", calls, Remember("all", truth=0.5))[-1].state.known.returned
    bounded = trained("fedavg", calls, Remember("all", truth=0.5), guards=[BoundedLengths(rounds=0)])[
        -1
    ].state.known.returned
    assert plain.true == pytest.approx(1.0 + 3 / 8, abs=1e-5)
    assert bounded.true < plain.true - 0.1


@pytest.mark.parametrize("in_file", [False, True])
@pytest.mark.parametrize("faithful", [0.1, 0.9])
def test_saved_and_restored_goes_on_to_the_same_bits(faithful: float, in_file: bool, tmp_path: Path) -> None:
    calls = rounds(14, faithful)

    def remember(name: str) -> Remember:
        return Remember("all", truth=0.5, store=RowStore(path=tmp_path / name if in_file else None))

    whole, first = trained("adafed", calls, remember("whole")), trained("adafed", calls[:7], remember("again"))
    tensors, numbers = first[-1].state.known.packed()
    assert numbers["returned"][1] > ENOUGH
    again = remember("again")
    state = adafed.RuleState(first[-1].state.numbers, Memory.unpacked(tensors, numbers, LENGTH, again.store))
    for call, expected in zip(calls[7:], whole[7:], strict=True):
        found = adafed.aggregate(adafed.rule("adafed"), **call, state=state, memory=again)
        assert torch.equal(found.direction, expected.direction)
        assert found.state.known.returned == expected.state.known.returned
        state = found.state


@pytest.mark.parametrize("returned", [None, 3, [1], [2.0, 1.0], [-1.0, 1.0], ["a", 1.0], [float("nan"), 1.0]])
def test_a_damaged_count_is_told(returned: Any) -> None:
    tensors, numbers = trained("adafed", rounds(6, 0.9), Remember("all", truth=0.5))[-1].state.known.packed()
    with pytest.raises(DamagedState, match="which share of its updates was still true"):
        Memory.unpacked(tensors, numbers | {"returned": returned}, LENGTH, None)


def test_auto_is_everyone_as_long_as_that_stays_true_for_rules_that_are_best_with_everyone() -> None:
    calls = rounds(12, faithful=0.3)
    for rule, same in (("adafed", Remember("all", truth=TRUE_ENOUGH)), ("fedavg", 0)):
        for one, other in zip(trained(rule, calls, "auto"), trained(rule, calls, same), strict=True):
            assert torch.equal(one.direction, other.direction)
            assert one.diagnostics.notes == other.diagnostics.notes


@pytest.mark.parametrize("rule", ["fedvarp", "fedfv"])
def test_a_rule_that_looks_back_by_itself_is_not_judged(rule: str) -> None:
    calls = rounds(12, faithful=0.0)
    for one, other in zip(trained(rule, calls, 0), trained(rule, calls, Remember(0, truth=0.9)), strict=True):
        assert torch.equal(one.direction, other.direction)
        assert one.diagnostics.notes == other.diagnostics.notes
        assert one.state.memory == other.state.memory


@pytest.mark.parametrize("truth", [-0.1, 1.5, "half"])
def test_a_wrong_truth_is_told(truth: Any) -> None:
    with pytest.raises(AdafedError, match=r"memory.truth is .*; it must be a share, from 0 to 1"):
        Remember("all", truth=truth)
