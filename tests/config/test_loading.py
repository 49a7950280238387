"""Configurations from files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from adafed import AdafedError, config_from, load_config
from adafed.config.loading import load_kept
from adafed.config.studies import load_study
from adafed.runs.description import require_same


@pytest.mark.parametrize("load", [load_config, load_study])
def test_a_missing_file_and_one_that_is_not_text(load: Callable[[Path], object], tmp_path: Path) -> None:
    with pytest.raises(AdafedError, match=r"nowhere\.toml cannot be read: No such file"):
        load(tmp_path / "nowhere.toml")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(AdafedError, match=r"binary\.toml is not text in UTF-8; a configuration is a TOML file$"):
        load(tmp_path / "binary.toml")


def test_settings_go_on_top_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "trial.toml").write_text("[rule]\nname = 'adafed'\ngamma = 1.0\n[local]\nlr = 0.5\n")
    config = load_config(tmp_path / "trial.toml", ["rule.gamma=5", "local.batch_size=full", "model.hidden=[3, 4]"])
    assert config.name == "trial"
    assert config.rule.options["gamma"] == 5
    assert (config.local.lr, config.local.batch_size) == (0.5, "full")
    assert config.model.options["hidden"] == [3, 4]
    renamed = load_config(tmp_path / "trial.toml", ["rule.name=fedavg"])
    assert renamed.rule.options == {}
    short = load_config(tmp_path / "trial.toml", ["rule=fedavg"])
    assert short.rule.name == "fedavg"


def test_a_run_from_before_there_were_guards_goes_on_without(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("rounds = 3\n")
    assert load_kept(tmp_path).parts.guards == ()
    (tmp_path / "config.toml").write_text(config_from({}).completed().to_toml())
    assert load_kept(tmp_path).parts.guards == config_from({}).parts.guards


@pytest.mark.parametrize("value", ["inf", "-inf", "nan"])
def test_an_option_that_is_not_finite_is_kept(value: str, tmp_path: Path) -> None:
    """JSON has no such numbers, TOML has."""
    config = config_from({"model": {"name": "mine:Net", "clip": float(value)}})
    (tmp_path / "config.toml").write_text(config.to_toml())
    found = load_kept(tmp_path)
    assert repr(found.model.options["clip"]) == repr(float(value))
    require_same(tmp_path, found, config)
