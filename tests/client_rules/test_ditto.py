"""Ditto: everyone's own model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from visits import GD, WORK, layer, quadratic, trained

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
