"""From the tables of a configuration to a federation, and every mistake in one sentence."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adafed import AdafedError
from adafed.data.sources import names, open_federation

SPLIT: dict[str, Any] = {"mode": "within", "validation": 0.1, "test": 0.2, "stratified": False, "pool": "all"}


def test_every_kind_of_data_opens(tmp_path: Path) -> None:
    np.savez(tmp_path / "anna.npz", x=np.zeros((10, 2), np.float32), y=np.arange(10) % 2)
    cases: list[tuple[dict[str, Any], dict[str, Any] | None, int]] = [
        ({"name": "digits"}, None, 20),
        ({"name": "digits"}, {"name": "iid", "clients": 3}, 3),
        ({"name": "synthetic", "clients": 4, "samples": 20}, None, 4),
        ({"name": "folder", "folder": str(tmp_path)}, None, 1),
    ]
    for data, partition, clients in cases:
        federation = open_federation(data, partition, SPLIT, seed=1)
        assert len(federation.ids) == len(federation.train_sizes) == clients
        again = open_federation(data, partition, SPLIT, seed=1)
        assert federation.checksum == again.checksum
        assert (federation.client(0).train.inputs == again.client(0).train.inputs).all()
    assert {"digits", "synthetic", "folder", "function"} < set(names())


MISTAKES: list[tuple[dict[str, Any], dict[str, Any] | None, str]] = [
    (
        {"name": "digitz"},
        None,
        r"data\.name = 'digitz' is unknown; there are cifar10, .*, your own as 'module:attribute'$",
    ),
    ({"name": "digits", "clients": 3}, None, r"data\.clients is unknown; data\.name = 'digits' has flat"),
    ({"name": "synthetic", "sample": 3}, None, r"data\.sample is unknown; data\.name = 'synthetic' has alpha, "),
    ({"name": "synthetic", "alpha": -1.0}, None, r"data\.alpha = -1\.0 must be a number of at least 0"),
    ({"name": "synthetic"}, {"name": "iid"}, r"\[partition\] has no meaning for data\.name = 'synthetic'"),
    ({"name": "folder"}, None, r"data\.folder is missing; data\.name = 'folder' needs it"),
    ({"name": "folder", "folder": "/nowhere"}, None, r"data\.folder = '/nowhere' is not a folder"),
    (
        {"name": "folder", "folder": "/", "files": 1},
        None,
        r"data\.files is unknown; data\.name = 'folder' has folder, classes$",
    ),
    ({"name": "function"}, None, r"data\.function is missing; data\.name = 'function' needs it"),
    (
        {"name": "function", "function": "nowhere"},
        None,
        r"data\.function = 'nowhere' must have the form",
    ),
    ({"name": "function", "function": "nowhere:x"}, None, r"data\.function = 'nowhere:x': there is no module"),
    ({"name": "function", "function": "os:nothing"}, None, r"os has no attribute 'nothing'"),
    ({"name": "digits"}, {"name": "idd"}, r"partition\.name = 'idd' is unknown"),
]


@pytest.mark.parametrize(("data", "partition", "told"), MISTAKES)
def test_mistakes_are_told_in_a_sentence(data: dict[str, Any], partition: dict[str, Any] | None, told: str) -> None:
    with pytest.raises(AdafedError, match=told) as error:
        open_federation(data, partition, SPLIT, seed=0)
    assert "\n" not in str(error.value)


def test_wrong_values_of_options_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Values of a kind that the maker does not expect, as a TOML file can hold them."""
    for data in ({"name": "synthetic", "alpha": "high"}, {"name": "synthetic", "iid": "yes"},
                 {"name": "folder", "folder": 3}):  # fmt: skip
        with pytest.raises(AdafedError, match=r"data\.(alpha|iid|folder) ") as error:
            open_federation(data, None, SPLIT, seed=0)
        assert "\n" not in str(error.value)
    (tmp_path / "maker_for_tests.py").write_text("def make(count):\n    return None\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(AdafedError, match=r"data\.size is unknown; data\.function = 'maker_for_tests:make' has count$"):
        open_federation({"name": "function", "function": "maker_for_tests:make", "size": 1}, None, SPLIT, seed=0)
    with pytest.raises(AdafedError, match=r"data\.count is missing; data\.function = 'maker_for_tests:make' needs it$"):
        open_federation({"name": "function", "function": "maker_for_tests:make"}, None, SPLIT, seed=0)


OWN = """
import sys
def fails(): raise KeyError("x")
def ends(): sys.exit(3)
def cuts(targets, clients=3): raise ZeroDivisionError("none")
def model(input_shape, classes): raise SystemExit
"""


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({"data": {"name": "function", "function": "own_failing:fails"}}, r"data.function = .* raised KeyError\('x'\)"),
        ({"data": {"name": "function", "function": "own_failing:ends"}}, r"raised SystemExit\(3\) in own_failing.py"),
        ({"data": {"name": "own_failing:ends"}}, r"data.name = 'own_failing:ends' raised SystemExit\(3\)"),
        ({"partition": {"name": "own_failing:cuts"}}, r"partition.name = .* raised ZeroDivisionError\('none'\)"),
        ({"model": {"name": "own_failing:model"}}, r"model.name = 'own_failing:model' cannot be built"),
    ],
)
def test_what_the_users_own_code_raises_is_told(
    config: dict[str, Any], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from adafed import config_from, simulate

    (tmp_path / "own_failing.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(AdafedError, match=told):
        list(simulate(config_from({"rounds": 1, "run": {"workers": 0}} | config)))


def test_a_file_name_that_is_no_text_is_told(tmp_path: Path) -> None:
    from adafed import config_from, simulate

    for name in (b"a", b"b\xff\xfe"):
        with open(os.path.join(os.fsencode(tmp_path), name + b".npz"), "wb") as file:
            np.savez(file, x=np.zeros((20, 2), np.float32), y=np.arange(20) % 2)
    config = config_from(
        {"rounds": 1, "model": "logistic", "data": {"name": "folder", "folder": str(tmp_path)}, "run": {"workers": 0}}
    )
    with pytest.raises(AdafedError, match=r"the client id 'b\\udcff\\udcfe' is no text"):
        list(simulate(config))
