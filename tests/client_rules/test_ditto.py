"""Ditto: everyone's own model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from visits import GD, WORK, layer, quadratic, trained

import adafed
from adafed.client_rules import ClientRule, Ditto, FedProx, Mixup
from adafed.engines.units import KeptFile
from adafed.engines.visiting import Visiting
from adafed.training.local import LocalTrainer

SGD = replace(GD, epochs=3, batch_size=2, momentum=0.5)


def personal(file: Path) -> torch.Tensor:
    (name, found), *rest = load_file(file).items()
    assert (name, rest) == ("ditto.personal", [])
    return found


@pytest.mark.parametrize("own_rate", [True, False])
@pytest.mark.parametrize(("strength", "key"), [(0.1, "lambda_0.1"), (1.0, "lambda_1")])
def test_the_hand_checked_numbers(
    oracles: dict[str, Any], strength: float, key: str, own_rate: bool, tmp_path: Path
) -> None:
    told = oracles["ditto"]
    trained(
        [Ditto(strength, told["lr"] if own_rate else None)],
        quadratic(told["target"]),
        torch.tensor(told["anchor"], dtype=torch.float32),
        initial=torch.tensor(told["v0"], dtype=torch.float32),
        how=replace(GD, epochs=told["steps"]),
        work=WORK._replace(lr=0.7 if own_rate else told["lr"]),
        kept=KeptFile(None, str(tmp_path / "new")),
    )
    assert personal(tmp_path / "new").tolist() == pytest.approx(told[key], rel=1e-5)


@pytest.mark.parametrize("beside", [[], [Mixup(1.0)], [FedProx(0.5)]], ids=["alone", "mixup", "fedprox"])
def test_the_global_model_is_trained_as_if_there_were_no_personal_ones(
    beside: list[ClientRule], tmp_path: Path
) -> None:
    with_own = trained([Ditto(0.5), *beside], layer(), how=SGD, kept=KeptFile(None, str(tmp_path / "new")))
    assert torch.equal(with_own.row, trained(beside, layer(), how=SGD).row)


@pytest.mark.parametrize("beside", [[], [Mixup(1.0)]], ids=["alone", "mixup"])
def test_its_batches_and_their_blending_are_those_of_the_global_model(beside: list[ClientRule], tmp_path: Path) -> None:
    """Without a pull and from the same start, it is the same training."""
    given = layer()
    found = trained([Ditto(0.0), *beside], given, how=SGD, kept=KeptFile(None, str(tmp_path / "new")))
    start = layer()[0].vector
    assert torch.equal(start - personal(tmp_path / "new"), found.row)


def test_it_is_pulled_to_the_received_model_by_its_own_strength(tmp_path: Path) -> None:
    received, start = layer()[0].vector.clone(), torch.ones(8)
    distances = []
    for strength in (0.0, 1.0, 5.0):
        kept = KeptFile(None, str(tmp_path / "new"))
        trained([Ditto(strength), FedProx(9.0)], layer(), received, initial=start, how=SGD, kept=kept)
        distances.append((personal(tmp_path / "new") - received).norm())
    assert distances[0] > distances[1] > distances[2]


@pytest.mark.parametrize("name", ["ditto.personal", "personal"])
def test_a_round_goes_on_from_what_was_kept(name: str, tmp_path: Path) -> None:
    """Which version 0.1 kept under the second name."""
    own, received = torch.ones(8), layer()[0].vector.clone()
    save_file({name: own}, tmp_path / "old")
    for source, initial, target in ((str(tmp_path / "old"), torch.zeros(8), "a"), (None, own, "b")):
        kept = KeptFile(source, str(tmp_path / target))
        trained([Ditto(0.5)], layer(), received, initial=initial, how=SGD, kept=kept)
    assert torch.equal(personal(tmp_path / "a"), personal(tmp_path / "b"))
    assert torch.equal(load_file(tmp_path / "old")[name], own)  # the file of the round before is left alone


def test_the_model_a_client_uses_is_the_one_it_kept_and_at_first_the_first_of_all(tmp_path: Path) -> None:
    model, initial, own = layer()[0], torch.zeros(8), torch.ones(8)
    visiting = Visiting([FedProx(), Ditto()], model, LocalTrainer(model, GD), initial)
    save_file({"ditto.personal": own}, tmp_path / "own")
    assert torch.equal(visiting.personal_model(KeptFile(str(tmp_path / "own"))), own)
    assert torch.equal(visiting.personal_model(KeptFile(None)), initial)


# Its own steps


def test_its_own_number_of_epochs_leaves_the_global_model_alone(tmp_path: Path) -> None:
    found = {}
    for epochs in (None, 3, 7):
        kept = KeptFile(None, str(tmp_path / f"{epochs}"))
        found[epochs] = trained([Ditto(0.5, epochs=epochs)], layer(), how=SGD, kept=kept).row
    assert torch.equal(found[None], found[7])
    assert torch.equal(personal(tmp_path / "None"), personal(tmp_path / "3"))  # as many as the round has
    assert not torch.equal(personal(tmp_path / "None"), personal(tmp_path / "7"))


def test_its_epochs_are_steps_of_its_own(oracles: dict[str, Any], tmp_path: Path) -> None:
    """The hand-checked two steps, beside one of the global model's."""
    told = oracles["ditto"]
    trained(
        [Ditto(0.1, epochs=told["steps"])],
        quadratic(told["target"]),
        torch.tensor(told["anchor"], dtype=torch.float32),
        initial=torch.tensor(told["v0"], dtype=torch.float32),
        work=WORK._replace(lr=told["lr"]),
        kept=KeptFile(None, str(tmp_path / "new")),
    )
    assert personal(tmp_path / "new").tolist() == pytest.approx(told["lambda_0.1"], rel=1e-5)


# After the last round


def last(rule: Ditto, kept: KeptFile, received: torch.Tensor) -> torch.Tensor:
    model, data = layer()
    return Visiting([rule], model, LocalTrainer(model, GD), torch.zeros(8)).last_model(WORK, data, received, kept, {})


def test_who_was_never_drawn_begins_with_the_global_model_and_the_others_go_on(tmp_path: Path) -> None:
    received, own = layer()[0].vector.clone(), torch.ones(8)
    save_file({"ditto.personal": own}, tmp_path / "own")
    drawn, never = KeptFile(str(tmp_path / "own")), KeptFile(None, str(tmp_path / "last"))
    assert torch.equal(last(Ditto(), drawn, received), own)
    assert torch.equal(last(Ditto(at_end="nobody"), never, received), torch.zeros(8))
    assert not (tmp_path / "last").exists()
    made = last(Ditto(0.0), never, received)
    assert torch.equal(received - made, trained([], layer()).row)  # without a pull: plain training from there
    assert torch.equal(personal(tmp_path / "last"), made)
    more = last(Ditto(0.0, at_end="everyone"), drawn, received)
    assert torch.equal(own - more, trained([], layer(), own).row)
    assert torch.equal(load_file(tmp_path / "own")["ditto.personal"], own)  # what it keeps for a next round stays


FEW = {
    "rounds": 2,
    "data": {"name": "digits"},
    "partition": {"name": "dirichlet", "clients": 8, "beta": 0.5, "minimum": 20},
    "model": {"name": "mlp", "hidden": [12]},
    "cohort": {"count": 2},
    "ditto": {"lambda": 0.1},
}


def ran(tmp_path: Path, name: str, rounds: int = 2, workers: int = 0, **over: Any) -> dict[tuple[str, bool, str], Any]:
    """The scores of the last evaluation, by part, model and client."""
    config = adafed.config_from(FEW | {"rounds": rounds, "run": {"workers": workers}} | over)
    *_, record = adafed.simulate(config, directory=tmp_path / name)
    return {(one.part, one.personal, client): score for one in record.evaluations for client, score in one.scores}


def test_everyone_has_a_model_of_its_own_at_the_end(tmp_path: Path) -> None:
    before = ran(tmp_path, "nobody", ditto={"at_end": "nobody"})
    after, everyone = ran(tmp_path, "undrawn"), ran(tmp_path, "everyone", ditto={"at_end": "everyone"})
    drawn = {file.name.partition("-")[0] for file in (tmp_path / "nobody" / "clients").iterdir()}
    assert 0 < len(drawn) < 8
    assert {file.name for file in (tmp_path / "undrawn" / "clients").glob("last-*")} == {
        f"last-{client}.safetensors" for client in range(8) if str(client) not in drawn
    }
    for (part, personal, client), score in after.items():
        same = not personal or client in drawn
        assert (score == before[part, personal, client]) == same
        assert (score == everyone[part, personal, client]) == (not personal or client not in drawn)
    undrawn = [key for key in after if key[1] and key[2] not in drawn]
    assert sum(after[key].loss for key in undrawn) < sum(before[key].loss for key in undrawn)


def test_worker_processes_give_the_same_bits(tmp_path: Path) -> None:
    assert ran(tmp_path, "here") == ran(tmp_path, "there", workers=2)
    for file in (tmp_path / "here" / "clients").iterdir():
        assert file.read_bytes() == (tmp_path / "there" / "clients" / file.name).read_bytes()


def test_a_run_that_ended_and_goes_on_is_the_same_as_one_that_went_through(tmp_path: Path) -> None:
    whole = ran(tmp_path, "whole", rounds=4, ditto={"at_end": "everyone"})
    ran(tmp_path, "parts", rounds=2, ditto={"at_end": "everyone"})
    assert ran(tmp_path, "parts", rounds=4, ditto={"at_end": "everyone"}) == whole
    names = {file.name for file in (tmp_path / "whole" / "clients").iterdir()}
    assert names == {file.name for file in (tmp_path / "parts" / "clients").iterdir()}
    for name in names:
        files = [tmp_path / run / "clients" / name for run in ("whole", "parts")]
        assert files[0].read_bytes() == files[1].read_bytes()


def test_scaffold_and_mixup_may_be_beside_it(tmp_path: Path) -> None:
    found = ran(tmp_path, "beside", client={"rules": ["scaffold"]}, local={"mixup": 1.0})
    assert all(score.accuracy is not None for score in found.values())


def test_mistakes_are_told_in_a_sentence() -> None:
    with pytest.raises(adafed.AdafedError, match=r"^ditto\.epochs is 0; it must be a finite number at least 1"):
        Ditto(epochs=0)
    with pytest.raises(adafed.AdafedError, match=r"^ditto\.at_end is 'all'; it must be one of 'undrawn', 'everyone'"):
        adafed.config_from({"ditto": {"at_end": "all"}})
