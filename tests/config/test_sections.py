"""What sections compute."""

from __future__ import annotations

from adafed import config_from


def test_local_rates_decay() -> None:
    config = config_from({"local": {"lr": 1.0, "lr_decay": 0.5, "lr_decay_every": 2}})
    assert [config.local.rate(t) for t in (1, 2, 3, 5)] == [1.0, 1.0, 0.5, 0.25]
