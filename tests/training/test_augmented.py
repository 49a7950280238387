"""Augmented training: what is drawn, its mean over many draws, and that it is the same whoever trains."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch

import adafed
from adafed.engines.local.simulate import Simulation
from adafed.training.augmented import Augmentation, augmented
from adafed.training.local import Assignment, Samples

BLACK = torch.tensor([-1.0, -2.0])
WORK = Assignment(client=3, round=5, lr=0.1)


def images(count: int = 4, height: int = 5, width: int = 6) -> torch.Tensor:
    return torch.rand(count, 2, height, width, generator=torch.Generator().manual_seed(0))


def samples(how: Augmentation, whole: torch.Tensor, work: Assignment = WORK, seed: int = 1) -> Samples:
    return augmented(how, whole, BLACK, torch.arange(len(whole))).visited(seed, work)


def drawn(how: Augmentation, whole: torch.Tensor, epochs: int) -> torch.Tensor:
    """epochs x images."""
    data, found = samples(how, whole), []
    for epoch in range(epochs):
        data.begin(epoch)
        found.append(data.taken(slice(0, len(whole))).inputs)
    return torch.stack(found)


def every_outcome(how: Augmentation, image: torch.Tensor) -> torch.Tensor:
    """All that can become of an image, each as likely as another."""
    pad, (_, height, width) = how.padding, image.shape
    canvas = BLACK[:, None, None].repeat(1, height + 2 * pad, width + 2 * pad)
    canvas[:, pad : pad + height, pad : pad + width] = image
    tall, wide = (how.crop, how.crop) if how.crop else (height, width)
    cuts = [
        canvas[:, top : top + tall, left : left + wide]
        for top in range(height + 2 * pad - tall + 1)
        for left in range(width + 2 * pad - wide + 1)
    ]
    return torch.stack(cuts + [cut.flip(-1) for cut in cuts] if how.flip else cuts)


HOW = [
    Augmentation(flip=True),
    Augmentation(padding=1),
    Augmentation(padding=2, flip=True),
    Augmentation(crop=3),
    Augmentation(padding=1, crop=4, flip=True),
]


@pytest.mark.parametrize("how", HOW, ids=str)
def test_every_image_becomes_one_of_its_outcomes_and_all_of_them_equally_often(how: Augmentation) -> None:
    whole, epochs = images(2), 4000
    found = drawn(how, whole, epochs)
    for k, image in enumerate(whole):
        outcomes = every_outcome(how, image)
        distances = (found[:, k, None] - outcomes[None]).flatten(2).abs().amax(dim=2)
        assert (distances.amin(dim=1) == 0).all()
        counts = torch.bincount(distances.argmin(dim=1), minlength=len(outcomes)).double()
        expected = epochs / len(outcomes)
        # Chi-squared with len - 1 degrees of freedom: its mean and six deviations.
        chi = float(((counts - expected) ** 2 / expected).sum())
        assert chi < len(outcomes) - 1 + 6 * (2 * (len(outcomes) - 1)) ** 0.5
        mean, deviation = outcomes.double().mean(dim=0), outcomes.double().std(dim=0, correction=0)
        assert ((found[:, k].double().mean(dim=0) - mean).abs() <= 5 * deviation / epochs**0.5 + 1e-6).all()


def test_it_depends_on_seed_round_client_epoch_and_sample_and_on_nothing_else() -> None:
    how, whole = Augmentation(padding=4, flip=True), images(6, 9, 9)

    def taken(chosen: slice | torch.Tensor, epoch: int = 2, seed: int = 1, **work: int) -> torch.Tensor:
        data = samples(how, whole, WORK._replace(**work), seed)
        data.begin(epoch)
        return data.taken(chosen).inputs

    everyone, order = taken(slice(0, 6)), torch.tensor([4, 1, 5])
    assert torch.equal(taken(order), everyone[order])  # whatever else is in the batch
    for other in ({"epoch": 3}, {"seed": 2}, {"round": 6}, {"client": 4}):
        assert not torch.equal(taken(slice(0, 6), **other), everyone)
    same = torch.cat([whole[:1]] * 6)
    data = samples(how, same)
    assert len({image.numpy().tobytes() for image in data.taken(slice(0, 6)).inputs}) > 1


def test_what_is_measured_is_the_middle() -> None:
    whole = images()
    assert torch.equal(samples(Augmentation(flip=True, padding=2), whole).inputs, whole)
    assert torch.equal(samples(Augmentation(crop=3), whole).inputs, whole[:, :, 1:4, 1:4])


# In runs

CNN: dict[str, Any] = {
    "rounds": 4,
    "data": {"name": "digits", "flat": False},
    "partition": {"name": "dirichlet", "clients": 6, "beta": 0.5, "minimum": 20},
    "model": {"name": "cnn", "channels": [4, 6], "dense": 16},
    "cohort": {"fraction": 0.5},
    "local": {"epochs": 2, "batch_size": 16, "lr": 0.05},
    "augment": {"padding": 1, "flip": True},
    "run": {"workers": 0},
}


def ran(directory: Path | None = None, rounds: int = 4, **over: Any) -> torch.Tensor:
    with Simulation(adafed.config_from(CNN | over), directory=directory) as simulation:
        for _ in islice(simulation.rounds(), rounds):
            pass
        return simulation.state.parameters.clone()


@pytest.mark.parametrize("over", [{"ditto": {}}, {"local": {"mixup": 1.0}}], ids=["ditto", "mixup"])
def test_workers_and_stops_change_no_bit(over: dict[str, Any], tmp_path: Path) -> None:
    whole = ran(**over)
    for workers in (1, 2):
        assert torch.equal(whole, ran(**over, run={"workers": workers}))
    ran(tmp_path / "run", 2, **over)
    assert torch.equal(whole, ran(tmp_path / "run", **over))
    assert not torch.equal(whole, ran(**over, augment={"padding": 1, "flip": False}))


def test_a_section_without_anything_in_it_changes_no_bit() -> None:
    plain = {key: value for key, value in CNN.items() if key != "augment"}
    with Simulation(adafed.config_from(plain)) as simulation:
        list(simulation.rounds())
        assert torch.equal(simulation.state.parameters, ran(augment={}))


def test_a_crop_sets_the_size_that_the_model_sees() -> None:
    with Simulation(adafed.config_from(CNN | {"augment": {"crop": 6}, "model": {"name": "mlp"}})) as simulation:
        assert simulation.federation.input_shape == (1, 6, 6)
        assert simulation.station.group == 1  # clients trained together would not each have their own draws
        list(simulation.rounds())


def test_the_same_client_is_trained_on_other_images_in_its_next_round() -> None:
    """On one image, flipped or not: the updates of many rounds are of two kinds."""
    data = augmented(Augmentation(flip=True), images(1), BLACK, torch.zeros(1, dtype=torch.int64))
    kinds = {data.visited(1, WORK._replace(round=t)).taken(slice(0, 1)).inputs.numpy().tobytes() for t in range(40)}
    assert len(kinds) == 2


def test_mistakes_are_told_in_a_sentence() -> None:
    with pytest.raises(adafed.AdafedError, match=r"^\[augment\] is for images; inputs have the shape \(64,\) here"):
        ran(data={"name": "digits"}, model={"name": "mlp"})
    with pytest.raises(adafed.AdafedError, match=r"^augment\.crop = 9: inputs have the shape \(1, 8, 8\)"):
        ran(augment={"crop": 9})
    with pytest.raises(adafed.AdafedError, match=r"^augment\.padding = 1 is of black pixels, which data\.standardise"):
        ran(data={"name": "digits", "flat": False, "standardise": "pixel"})
    with pytest.raises(adafed.AdafedError, match=r"augment\.padding"):
        adafed.config_from({"augment": {"padding": -1}})
