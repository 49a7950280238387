"""Packaged experiments by name, and files before names."""

from __future__ import annotations

from pathlib import Path

import pytest

from adafed import load_config
from adafed.config.experiments import names, packaged, path
from adafed.config.studies import load_study
from adafed.errors import AdafedError


@pytest.mark.parametrize("name", names())
def test_every_name_is_a_study_and_an_experiment(name: str) -> None:
    study = load_study(name)
    assert study.name == name
    assert study.methods
    assert load_config(name) == study.config()


def test_settings_lie_over_a_packaged_experiment() -> None:
    config = load_config("demo", ["rounds=3"])
    assert (config.name, config.rounds, config.data.name) == ("demo", 3, "digits")


def test_a_file_goes_before_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fashion").mkdir()  # a folder is no experiment
    (tmp_path / "demo").write_text("rounds = 7")
    assert path("fashion") == packaged("fashion")
    assert path("demo") == Path("demo")
    assert load_config("demo").rounds == 7
    assert load_study(packaged("demo")).methods


def test_what_is_neither_is_told_with_the_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for given in ("fasion", "fasion.toml"):
        with pytest.raises(AdafedError, match=rf"^{given} cannot be read: .*there are .*; did you mean fashion\?$"):
            load_study(given)
    with pytest.raises(
        AdafedError, match=r"no packaged experiment is called 'x'; there are attack, cifar10-1, .*tinyimagenet$"
    ):
        packaged("x")
    with pytest.raises(AdafedError, match=r"^here/there cannot be read: No such file or directory$"):
        load_config("here/there")
