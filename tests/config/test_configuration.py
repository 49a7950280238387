"""A whole configuration: what it names, what is left out of it, and what is kept of it."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from adafed import AdafedError, Config, config_from, load_config, simulate
from adafed.client_rules import Ditto
from adafed.config.merging import merged
from adafed.server_rules import RULES, rule
from adafed.server_rules.guards import DEFAULT_GUARDS


def test_the_defaults_are_a_run() -> None:
    records = list(simulate(Config(rounds=1).changed(run={"workers": 0})))
    assert len(records) == 1


@pytest.mark.parametrize("given", ["first.toml", None, [], {1: 2}])
def test_what_is_no_mapping_is_told(given: Any) -> None:
    with pytest.raises(AdafedError, match=r"give a mapping of keys and values, or a file to adafed\.load_config"):
        config_from(given)


def test_a_configuration_that_was_not_read_is_told() -> None:
    with pytest.raises(AdafedError, match=r"config is a dict; give what adafed\.config_from or load_config returns"):
        list(simulate({"rounds": 1}))  # type: ignore[arg-type]


def test_a_partition_without_a_name_is_the_usual_one() -> None:
    config = config_from({"partition": {"clients": 6}})
    assert config.partition is not None
    assert config.partition.model_dump() == {"name": "dirichlet", "clients": 6, "beta": 0.5}
    assert config_from({"partition": {"beta": 1.0}}).partition is not None
    over = config_from(merged({"partition": {"clients": 6, "beta": 2.0}}, {"partition": {"name": "iid", "clients": 3}}))
    assert over.partition is not None
    assert over.partition.model_dump() == {"name": "iid", "clients": 3}
    assert config_from({}).partition is None


def test_a_configuration_survives_its_own_file(tmp_path: Path) -> None:
    config = config_from({
        "rule": "fedavg", "ditto": {"lambda": 0.25}, "cohort": {"join": {"a": 3}}, "local": {"batch_size": "full"},
        "partition": {"name": "iid", "clients": 3}, "seeds": {"data": 4}, "run": {"workers": "auto"},
    })  # fmt: skip
    (tmp_path / "experiment.toml").write_text(config.to_toml())
    assert load_config(tmp_path / "experiment.toml") == config
    changed = config.changed(rule={"name": "adafed", "gamma": 2.0})
    assert changed.parts.client_rules == config.parts.client_rules == (Ditto(0.25),)


@pytest.mark.parametrize("name", RULES.names())
def test_a_completed_configuration_names_every_option_and_makes_the_same_rule(name: str, tmp_path: Path) -> None:
    config = config_from({"rule": name, "server": {"optimizer": "adam"}})
    (tmp_path / "run.toml").write_text(config.completed().to_toml())
    again = load_config(tmp_path / "run.toml")
    assert again == again.completed() == config.completed()
    assert rule(name, **again.rule.options) == rule(name)
    known = {field.name for field in dataclasses.fields(rule(name)) if getattr(rule(name), field.name) is not None}
    assert set(again.rule.options) == known
    assert "beta2" in again.server.optimizer.options


def test_an_experiment_has_the_guards_that_it_names() -> None:
    assert [guard.name for guard in config_from({}).parts.guards] == ["diverged"]  # against accidents alone
    named = [guard.name for guard in config_from({"guards": {"use": "default"}}).parts.guards]
    assert named == list(DEFAULT_GUARDS)
    assert config_from({"guards": {"use": []}}).parts.guards == ()
    more = config_from({"guards": {"use": ["default", {"name": "krum", "share": 0.2}]}}).parts.guards
    assert [guard.name for guard in more] == [*DEFAULT_GUARDS, "krum"]


def test_guards_are_kept_with_every_option() -> None:
    """So that a later default changes no old run."""
    kept = config_from({"guards": {"use": "default"}}).completed().to_dict()["guards"]["use"]
    assert [one["name"] for one in kept] == list(DEFAULT_GUARDS)
    assert all(len(one) > 1 for one in kept)
    assert (
        config_from({"guards": {"use": kept}}).parts.guards == config_from({"guards": {"use": "default"}}).parts.guards
    )
