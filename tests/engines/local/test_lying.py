"""Runs in which clients lie: the same bits for any number of workers and after a stop, and honest clients untouched."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from adafed import AdafedError, config_from, simulate
from adafed.engines.local.simulate import Simulation
from adafed.engines.station import Station, liars_of

BASE: dict[str, Any] = {
    "rounds": 4,
    "partition": {"name": "dirichlet", "clients": 6, "beta": 0.5},
    "model": {"name": "mlp", "hidden": [8]},
    "run": {"workers": 0},
    "guards": {"use": []},
}
LIES: list[Any] = [{"name": "loss", "factor": 100.0}, "random", {"name": "samples", "factor": 3.0}]


def attacked(use: list[Any], **over: Any) -> Any:
    return config_from(BASE | {"attack": {"use": use, "clients": ["2"]}} | over)


def parameters(config: Any, directory: Path | None = None) -> Any:
    with Simulation(config, directory=directory) as simulation:
        records = list(simulation.rounds())
        return simulation.state.parameters.numpy().copy(), records


def test_lies_are_the_same_bits_whatever_the_number_of_workers() -> None:
    """Two for what is told of updates; labels are flipped where the data are read, in whichever process."""
    for use, workers in ((LIES, 2), (["labels"], 1)):
        alone, _ = parameters(attacked(use))
        elsewhere, _ = parameters(attacked(use, run={"workers": workers}))
        assert np.array_equal(alone, elsewhere)


def test_a_stopped_run_goes_on_with_the_same_lies(tmp_path: Path) -> None:
    config = attacked(LIES, guards={"use": "default"})
    whole, records = parameters(config, tmp_path / "whole")
    half = simulate(config, directory=tmp_path / "half")
    list(islice(half, 2))
    half.close()
    rest, later = parameters(config, tmp_path / "half")
    assert np.array_equal(whole, rest)
    assert [record.notes for record in later] == [record.notes for record in records[2:]]


@pytest.mark.parametrize("rule", ["adafed", "fedavg"])
def test_the_bound_for_accidents_changes_no_bit_of_a_healthy_run(rule: str) -> None:
    unasked = {key: value for key, value in BASE.items() if key != "guards"} | {"rule": rule}
    bare, before = parameters(config_from(BASE | {"rule": rule}))
    watched, after = parameters(config_from(unasked))
    assert np.array_equal(bare, watched)
    assert [record.participants for record in before] == [record.participants for record in after]


def test_the_bound_for_accidents_holds_what_is_beyond_all_measure() -> None:
    unasked = {key: value for key, value in BASE.items() if key != "guards"} | {"rule": "fedavg"}
    accident = {"rounds": 1, "attack": {"use": [{"name": "scale", "factor": 1e9}], "clients": ["2"]}}
    bare, _ = parameters(config_from(BASE | {"rule": "fedavg"} | accident))
    bound, records = parameters(config_from(unasked | accident))
    assert np.linalg.norm(bound) < 1e-4 * np.linalg.norm(bare)
    assert "2" in records[0].notes["bounded"]


def test_what_the_server_is_told_is_the_lie_and_what_is_measured_is_not() -> None:
    _, honest = parameters(config_from(BASE))
    _, told = parameters(attacked(LIES))
    liar, truth = told[0].participants[2], honest[0].participants[2]
    assert liar.before == pytest.approx(100.0 * truth.before)
    assert liar.samples == 3 * truth.samples
    assert told[0].participants[:2] != honest[0].participants[:2]  # the rule weighs all of them anew
    assert [one.before for one in told[0].participants[:2]] == [one.before for one in honest[0].participants[:2]]


def test_no_lie_is_no_attack() -> None:
    assert np.array_equal(parameters(attacked([]))[0], parameters(config_from(BASE))[0])


def test_a_broken_update_costs_the_liar_its_round() -> None:
    _, records = parameters(attacked(["nan"]))
    assert all(record.participants[2].dropped == "update has a non-finite value" for record in records)


def test_flipped_labels_are_in_the_training_part_of_the_liars_alone() -> None:
    honest, flipped = Station(config_from(BASE)).federation, Station(attacked(["labels"])).federation
    assert honest.checksum != flipped.checksum
    for k in range(6):
        one, other = honest.client(k), flipped.client(k)
        expected = 9 - one.train.targets if k == 2 else one.train.targets
        assert np.array_equal(other.train.targets, expected)
        assert np.array_equal(other.test.targets, one.test.targets)


def test_who_lies_follows_from_the_seed() -> None:
    ids = [str(k) for k in range(6)]
    config = config_from(BASE | {"attack": {"use": LIES, "share": 0.5}})
    assert len(liars_of(config, ids)) == 3
    assert liars_of(config, ids) == liars_of(config.changed(rounds=9), ids)
    assert liars_of(config_from(BASE), ids) == frozenset()


def test_a_configuration_keeps_its_lies_complete() -> None:
    config = attacked(LIES).completed()
    assert config.to_dict()["attack"]["use"][1] == {"name": "random", "times": 1.0}
    assert config_from(config.to_dict()).parts.lies == attacked(LIES).parts.lies


def test_a_client_that_is_not_there_cannot_lie() -> None:
    with pytest.raises(AdafedError, match=r"^attack\.clients has '9'; the clients are 0, 1, 2, 3, 4, 5$"):
        list(simulate(config_from(BASE | {"attack": {"use": LIES, "clients": ["9"]}})))


def test_lies_of_ones_own_that_do_wrong_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_lies.py").write_text(
        "from dataclasses import dataclass\n"
        "from typing import ClassVar\n"
        "from adafed.attacks import Lie\n"
        "@dataclass(frozen=True)\n"
        "class Trips(Lie):\n"
        "    def tell(self, liars, honest, random):\n        return 1 / 0\n"
        "@dataclass(frozen=True)\n"
        "class InData(Trips):\n"
        "    in_data: ClassVar[bool] = True\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(AdafedError, match=r"attack.use = 'own_lies:Trips' raised ZeroDivisionError"):
        list(simulate(attacked(["own_lies:Trips"])))
    with pytest.raises(
        AdafedError, match=r"attack.use names 'own_lies:InData' with in_data, which is of flipped labels"
    ):
        list(simulate(attacked(["own_lies:InData"])))


@pytest.mark.slow
def test_a_liar_who_is_nobody_leaves_no_process_and_no_lock(tmp_path: Path) -> None:
    for _ in range(2):
        with pytest.raises(AdafedError, match=r"attack\.clients"):
            parameters(attacked(["nan"], attack={"use": ["nan"], "clients": ["nobody"]}, run={"workers": 1}), tmp_path)
    assert not psutil.Process().children()
