"""Which run a directory holds: the same experiment, and a description that is whole."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from adafed import AdafedError, Config
from adafed.config.configuration import config_from
from adafed.engines.local.simulate import simulate
from adafed.runs.description import begun_with, require_same


def experiment(rounds: int = 1) -> Config:
    data = {"name": "synthetic", "clients": 3, "samples": 20, "features": 5, "classes": 3}
    return config_from({"rounds": rounds, "data": data, "model": "logistic", "run": {"workers": 0}})


def test_how_the_data_came_here_makes_no_other_experiment(tmp_path: Path) -> None:
    here, there = (
        config_from({"data": {"name": "cifar10", "dir": where, "verify": flag, "download": flag}})
        for where, flag in (("a", True), ("b", False))
    )
    require_same(tmp_path, here, there)
    with pytest.raises(AdafedError, match=r"data\.name was 'cifar10' and is now 'fashion'"):
        require_same(tmp_path, here, config_from({"data": {"name": "fashion"}}))


DAMAGED = ["", "{}", "[]", '{"data": {"checksum": 3}, "trained_together": 1}']
DAMAGED += [f'{{"format": {kind}, "data": {{"checksum": "a"}}, "trained_together": 1}}' for kind in ('"1"', 0, "true")]


@pytest.mark.parametrize("content", DAMAGED)
def test_a_damaged_description_is_told(content: str, tmp_path: Path) -> None:
    list(simulate(experiment(), directory=tmp_path / "run"))
    (tmp_path / "run" / "run.json").write_text(content)
    with pytest.raises(AdafedError, match=r"run\.json is damaged, so the run cannot go on"):
        list(simulate(experiment(), directory=tmp_path / "run"))
    with pytest.raises(AdafedError, match=r"run\.json is damaged"):
        begun_with(tmp_path / "run")


def test_a_directory_without_a_format_goes_on_and_one_of_a_newer_is_refused(tmp_path: Path) -> None:
    run = tmp_path / "run"
    list(simulate(experiment(), directory=run))
    facts = json.loads((run / "run.json").read_text())
    number = facts.pop("format")
    (run / "run.json").write_text(json.dumps(facts))
    assert [record.round for record in simulate(experiment(rounds=2), directory=run)] == [2]
    (run / "run.json").write_text(json.dumps(facts | {"format": number + 1}))
    with pytest.raises(AdafedError, match=rf"of format {number + 1} and this adafed reads up to format {number}"):
        list(simulate(experiment(rounds=3), directory=run))
