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
