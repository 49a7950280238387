"""A model that does not fit the data is told before anything is trained."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adafed import AdafedError
from adafed.config.configuration import Config, config_from
from adafed.config.merging import merged
from adafed.engines.station import Station


def experiment(**changes: Any) -> Config:
    base = {
        "data": {"name": "synthetic", "clients": 50, "samples": 20, "features": 5, "classes": 3},
        "model": {"name": "mlp", "hidden": [6]},
        "cohort": {"count": 2},
        "run": {"workers": 0},
    }
    return config_from(merged(base, changes))


MODELS = """
import torch
from torch import nn


class Wide(nn.Module):
    def __init__(self, input_shape, classes):
        super().__init__()
        self.last = nn.Linear(input_shape[0], classes + 1)

    def forward(self, x):
        return self.last(x)


class Double(Wide):
    def forward(self, x):
        return self.last(x.double())


class Empty(nn.Module):
    def forward(self, x):
        return x[:, :3]
"""


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("Wide", r"answers one sample with \(1, 4\); it must be \(1, 3\), a score a class"),
        ("Double", r"does not take inputs of shape \(5,\) and type float32: "),
        ("Empty", r"has no parameter to train; it must have one"),
    ],
)
def test_a_model_that_does_not_fit_is_told(
    name: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "unfit_for_tests.py").write_text(MODELS)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(AdafedError, match=told) as error:
        Station(experiment(model={"name": f"unfit_for_tests:{name}"}))
    assert "\n" not in str(error.value)
    sys.modules.pop("unfit_for_tests", None)


def test_labels_that_make_too_many_classes_are_told(tmp_path: Path) -> None:
    np.savez(tmp_path / "anna.npz", x=np.zeros((10, 2), np.float32), y=np.arange(10) * 10**8)
    with pytest.raises(AdafedError, match=r"the data have labels up to 900000000"):
        Station(config_from({"data": {"name": "folder", "folder": str(tmp_path)}}))


@pytest.mark.parametrize(("options", "words"), [({}, 3), ({"vocabulary": 10}, 10), ({"vocabulary": 50}, None)])
def test_a_word_that_the_vocabulary_has_not_is_told(options: dict[str, Any], words: int | None) -> None:
    """The first client has the words 0 and 1 alone, another one the word 49."""
    config = config_from({"data": {"name": f"{__name__}:words"}, "model": {"name": "lstm", "hidden": 4, **options}})
    if words is None:
        Station(config)
        return
    with pytest.raises(AdafedError, match=rf"^model\.vocabulary is {words}, and client b has the token 49; tokens go "):
        Station(config)


def words() -> dict[str, Any]:
    random = np.random.default_rng(0)
    few, many = random.integers(0, 2, (20, 5)), random.integers(0, 49, (20, 5))
    many[:, 0] = 49
    return {"a": (few, random.integers(0, 3, 20)), "b": (many, random.integers(0, 3, 20))}
