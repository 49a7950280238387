"""Every reader on a few hostile inputs; `scripts/fuzz.py` does thousands. What it found is kept here."""

from __future__ import annotations

import importlib.util
import json
import sys
import zipfile
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

import adafed
from adafed import AdafedError
from adafed.data import femnist
from adafed.data.download import unpack
from adafed.runs.store import Store


def _script() -> ModuleType:
    pytest.importorskip("flwr")
    path = Path(__file__).parents[1] / "scripts" / "fuzz.py"
    spec = importlib.util.spec_from_file_location("adafed_fuzz", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["adafed_fuzz"] = module
    spec.loader.exec_module(module)
    return module


NAMES = ("TOML", "LEAF", "Idx", "CIFAR", "Npz", "Pictures", "Archives", "SavedStates", "RunStore", "Results", "Flower",
         "Aggregation")  # fmt: skip


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return _script()


def test_every_reader_is_tried(script: ModuleType) -> None:
    assert tuple(kind.__name__ for kind in script.READERS) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_reader_answers_or_refuses(name: str, script: ModuleType) -> None:
    found = script.fuzzed(getattr(script, name), 40, seed=1)
    assert found.findings == []
    assert found.examples == 40
    assert found.refused > 0, "hostile input that nobody notices is none"


def test_what_is_no_sentence_is_found(script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check can fail: another exception, too much memory and too much time are findings."""

    class Broken(script.Reader):  # type: ignore[misc,name-defined]
        name = "broken"

        def example(self, random: Any) -> Any:
            def fails() -> None:
                raise KeyError("x")

            def takes() -> object:
                return b"\x01" * (script.peak() + 2 * script.MOST_MEMORY)

            def lasts() -> None:
                while True:
                    pass

            self.turn = getattr(self, "turn", -1) + 1
            return (fails, takes, lasts)[self.turn]

    monkeypatch.setattr(script, "MOST_SECONDS", 3.0)
    monkeypatch.setattr(script, "MOST_MEMORY", 2**25)
    found = script.fuzzed(Broken, 3, seed=0)
    told = "\n".join(found.findings)
    assert len(found.findings) == 3
    assert "KeyError" in told
    assert "MB of memory" in told
    assert "more than 3 seconds" in told


# Findings


def test_a_pixel_beyond_float32_is_told(tmp_path: Path) -> None:
    user = {"x": [[1e308] * 784], "y": [1]}
    for part in ("train", "test"):
        (tmp_path / "femnist" / part).mkdir(parents=True)
        document = {"users": ["u"], "num_samples": [1], "user_data": {"u": user}}
        (tmp_path / "femnist" / part / "a.json").write_text(json.dumps(document))
    with pytest.raises(AdafedError, match=r"leave \[0, 1\]"):
        femnist.load(tmp_path)


@pytest.mark.parametrize("count", ["Infinity", "NaN", "-1", '"a"', "1e400", "[1]", "true"])
def test_counts_of_labels_that_are_none_are_left_aside(count: str, tmp_path: Path) -> None:
    from adafed import config_from, simulate
    from adafed.page.reading import read_run

    config = config_from({"rounds": 1, "model": "logistic", "run": {"workers": 0}})
    list(simulate(config, directory=tmp_path / "run"))
    (tmp_path / "run" / "labels.json").write_text(
        f'{{"format": 1, "part": "train", "labels": {{"0": {{"1": {count}}}}}}}'
    )
    clients = read_run(tmp_path / "run").clients
    assert clients is not None
    assert clients.labels is None


def test_a_member_without_a_name_is_told(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "data.zip", "w") as archive:
        archive.writestr("name", b"x")
    content = (tmp_path / "data.zip").read_bytes().replace(b"name", b"\x00ame")
    (tmp_path / "data.zip").write_bytes(content)
    with pytest.raises(AdafedError, match=r"cannot be unpacked \(string index out of range\)"):
        unpack(tmp_path / "data.zip", "data")


def test_a_federation_beyond_all_numbers_is_told() -> None:
    rows, losses = torch.ones(2, 3), [0.5, 0.6]
    for size in (10**20, 2**31):
        with pytest.raises(AdafedError, match=r"federation is .*; it must be at most"):
            adafed.aggregate(adafed.rule("afl"), rows, losses=losses, federation=size)
    state = adafed.RuleState({"shares": {}, "unseen": 10**20, "each": 0.0})
    with pytest.raises(AdafedError, match="clients are unseen"):
        adafed.aggregate(adafed.rule("afl"), rows, losses=losses, state=state)


def test_tables_that_sqlite_cannot_quote_are_told(tmp_path: Path) -> None:
    store = Store(tmp_path / "rounds.sqlite")
    store.close()
    content = (tmp_path / "rounds.sqlite").read_bytes()
    assert b"samples INTEGER NOT NULL" in content
    broken = content.replace(b"loss REAL", b"loss \xeeEAL").replace(
        b"INTEGER NOT NULL, loss", b"INTEGER NOT NULL\xee loss"
    )
    (tmp_path / "rounds.sqlite").write_bytes(broken)
    with pytest.raises(AdafedError, match="the file may be damaged"):
        Store(tmp_path / "rounds.sqlite", read_only=True)
