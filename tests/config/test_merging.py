"""Settings of the command line, and one configuration over another."""

from __future__ import annotations

import pytest

from adafed import AdafedError, config_from
from adafed.config.merging import merged, parse_settings


def test_options_without_a_name_go_with_the_entry_they_belong_to() -> None:
    config = config_from(merged({"rule": {"gamma": 1.0}, "server": {"optimizer": {"momentum": 0.5}}},
                                {"rule": "fedavg", "server": {"optimizer": {"name": "adam"}}}))  # fmt: skip
    assert (config.rule.name, config.rule.options) == ("fedavg", {})
    assert config.server.optimizer.options == {}
    assert config_from(merged({"rule": {"gamma": 1.0}}, {"rule": {"name": "adafed"}})).rule.options == {"gamma": 1.0}


@pytest.mark.parametrize("setting", ["rule.gamma", "=3", "rule..gamma=1", ".=1"])
def test_settings_that_are_none(setting: str) -> None:
    with pytest.raises(AdafedError, match=r"is not of the form section\.key=value"):
        parse_settings([setting])


@pytest.mark.parametrize(
    "settings",
    [
        ["rule.q=5", "rule.name=qffl"],
        ["rule.name=qffl", "rule.q=5"],
        ["rule.q=5", "rule=qffl"],
        ["rule=qffl", "rule.q=5"],
    ],
)
def test_settings_beside_each_other_are_taken_in_any_order(settings: list[str]) -> None:
    assert parse_settings(settings) == {"rule": {"name": "qffl", "q": 5}}
    laid_over = merged({"rule": {"name": "adafed", "gamma": 3.0}}, parse_settings(settings))
    assert config_from(laid_over).label == "qffl(q=5.0)"
