"""A memory that keeps sketches of everyone and few updates whole."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.server.test_memory import ADAFED, PLAIN, Federation, Quadratics, trained

import adafed
from adafed.algebra.stored import StoredRow
from adafed.errors import AdafedError, NoClientLeft
from adafed.server.memory import Memory, Remember
from adafed.server.row_files import RowStore


def sketching(most: int, sketch: int = 512, path: Path | None = None, **more: Any) -> Remember:
    return Remember("all", most=most, store=RowStore(path=path, sketch=sketch), **more)


def calls_of(rounds: int, length: int = 700, **more: Any) -> list[dict[str, Any]]:
    return [call | {"updates": call["updates"].float()} for call in Federation(length=length, **more).rounds(rounds)]


def test_everyone_is_remembered_and_so_many_are_whole() -> None:
    last = trained(ADAFED, calls_of(12), memory=sketching(most=7))[-1].state.known
    assert len(last) == len(last.sketches) == 12
    assert len(last.whole) == 7
    assert [row is not None for row in last.rows[-4:]] == [True] * 4  # the cohort's


def test_the_newest_stay_whole() -> None:
    known = trained(ADAFED, calls_of(12), memory=sketching(most=7))[-1].state.known
    whole = [round_ for round_, row in zip(known.rounds, known.rows, strict=True) if row is not None]
    gone = [round_ for round_, row in zip(known.rounds, known.rows, strict=True) if row is None]
    assert max(gone) <= min(whole)


def test_long_sketches_and_room_for_all_is_the_memory_itself() -> None:
    calls = calls_of(10, length=60)
    exact = trained(ADAFED, calls, memory="all")
    close = trained(ADAFED, calls, memory=sketching(most=12, sketch=2**20))  # hardly two columns share a place
    for one, other in zip(exact, close, strict=True):
        torch.testing.assert_close(one.direction, other.direction, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("rule", [ADAFED, PLAIN], ids=str)
def test_those_that_are_whole_carry_the_others(rule: adafed.Rule) -> None:
    """The direction is the projection of the rule's own onto what is whole: their rates stay, nearly."""
    calls = calls_of(12, length=60)
    every = trained(rule, calls, memory="all")
    state = trained(rule, calls[:-1], memory=sketching(most=8, sketch=2**20))[-1].state
    found = adafed.aggregate(rule, **calls[-1], state=state, memory=sketching(most=8, sketch=2**20))
    updates = calls[-1]["updates"]
    torch.testing.assert_close(updates @ found.direction, updates @ every[-1].direction, rtol=0.02, atol=0.05)
    assert found.direction.norm() <= every[-1].direction.norm() * 1.01
    assert not torch.allclose(found.direction, every[-1].direction, rtol=0.02)
    assert 0.0 in found.remembered.values()


def test_everyone_in_every_round_changes_no_bit() -> None:
    calls = calls_of(4, clients=4)
    plain, kept = trained(ADAFED, calls), trained(ADAFED, calls, memory=sketching(most=4))
    assert all(torch.equal(one.direction, other.direction) for one, other in zip(plain, kept, strict=True))
    assert all(one.diagnostics.norm == other.diagnostics.norm for one, other in zip(plain, kept, strict=True))


def test_what_is_measured_is_exact() -> None:
    call = calls_of(12)[-1]
    last = trained(ADAFED, calls_of(12), memory=sketching(most=7))[-1]
    updates = call["updates"].double()
    assert np.isclose(last.diagnostics.norm, float(last.direction.double().norm()), rtol=1e-5)
    np.testing.assert_allclose(
        last.diagnostics.rates, (updates @ last.direction.double()).numpy(), rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("in_file", [False, True])
def test_saved_and_restored_goes_on_to_the_same_bits(in_file: bool, tmp_path: Path) -> None:
    calls = calls_of(12)
    whole = trained(ADAFED, calls, memory=sketching(most=6))
    kept = sketching(6, path=tmp_path / "memory.rows" if in_file else None)
    tensors, numbers = trained(ADAFED, calls[:6], memory=kept)[-1].state.known.packed()
    assert (tmp_path / "memory.sketches").exists() == in_file
    again = sketching(6, path=kept.store.path)
    state = adafed.RuleState(whole[5].state.numbers, Memory.unpacked(tensors, numbers, 700, again.store))
    for call, expected in zip(calls[6:], whole[6:], strict=True):
        found = adafed.aggregate(ADAFED, **call, state=state, memory=again)
        assert torch.equal(found.direction, expected.direction)
        state = found.state


def test_a_bounded_update_is_sketched_as_the_rule_saw_it() -> None:
    from adafed.server_rules.guards import Guard, Verdict

    class Halved(Guard):
        def judge(self, facts: Any, needs: Any) -> Verdict:
            return Verdict(facts, np.full(facts.count, 0.5))

    calls = calls_of(3)
    plain = trained(ADAFED, calls, memory=sketching(most=12))[-1].state.known
    halved = trained(ADAFED, calls, memory=sketching(most=12), guards=(Halved(),))[-1].state.known
    for one, other in zip(plain.sketches, halved.sketches, strict=True):
        assert isinstance(one, StoredRow)
        assert isinstance(other, StoredRow)
        torch.testing.assert_close(0.5 * one.tensor(), other.tensor())


def test_training_still_falls_towards_where_nobody_can_gain() -> None:
    """Half of the federation kept whole: not to rest as with all of it, but below what a cohort alone comes to."""
    quadratics = Quadratics()
    few = float(np.median(quadratics.trained(sketching(most=6, sketch=256))[-400:]))
    assert few < float(np.median(quadratics.trained(0)[-400:]))


def test_mistakes_are_told() -> None:
    with pytest.raises(AdafedError, match=r"memory.sketch is 512 and memory.most is 0; say how many are kept whole"):
        sketching(most=0)
    with pytest.raises(AdafedError, match=r"memory.sketch is 512 and rule fedvarp needs earlier updates whole"):
        adafed.aggregate(adafed.rule("fedvarp"), torch.ones(1, 3), memory=sketching(most=3), federation=3)
    state = adafed.aggregate(PLAIN, torch.ones(2, 3), memory="all").state
    with pytest.raises(AdafedError, match=r"memory.sketch is 512 and the state was made with 0; keep it as it was"):
        adafed.aggregate(PLAIN, torch.ones(1, 3), clients=["x"], round=2, state=state, memory=sketching(most=3))


@pytest.mark.parametrize("rule", [ADAFED, PLAIN], ids=str)
def test_an_update_of_zero_carries_nothing_and_one_that_a_guard_shortens_is_sketched(rule: adafed.Rule) -> None:
    calls = calls_of(8)
    calls[5]["updates"][0] = 0.0
    calls[6]["updates"][1] *= 3e38 / calls[6]["updates"][1].abs().max()
    for out in trained(rule, calls, memory=sketching(most=5), guards="default"):
        assert out.direction.isfinite().all()
        assert all(row.tensor().isfinite().all() for row in out.state.known.sketches if isinstance(row, StoredRow))
    with pytest.raises(NoClientLeft):  # nobody shortens it: the round can be skipped
        trained(PLAIN, calls, memory=sketching(most=5))
