"""Run directories of version 0.1 are read, and go on to the same bits: a run is put back into the form of then."""

from __future__ import annotations

import json
import sqlite3
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from safetensors import safe_open
from safetensors.torch import load_file, save_file

import adafed
from adafed.config.configuration import config_from
from adafed.runs.summary import summarise

BASE: dict[str, Any] = {
    "rounds": 6,
    "data": {"name": "synthetic", "clients": 6, "samples": 30, "features": 6, "classes": 3},
    "model": {"name": "mlp", "hidden": [5]},
    "cohort": {"fraction": 0.5},
    "run": {"workers": 0},
}
FEDCORR = {"fedcorr": {"iterations": 1, "group": 3, "clean_rounds": 1, "neighbours": 3}, "noise": {}}


def put_back(run: Path) -> None:
    """What version 0.1 wrote: `personal/`, bare names of tensors, `personal` among a checkpoint's numbers, `rate`."""
    (run / "clients").rename(run / "personal")
    for file in (run / "personal").iterdir():
        save_file({name.removeprefix("ditto."): one for name, one in load_file(file).items()}, file)
    for file in (run / "checkpoints").iterdir():
        with safe_open(file, framework="pt") as content:
            numbers = json.loads(content.metadata()["state"])
        numbers["personal"] = numbers.pop("kept")
        tensors = {name.replace("known.fedcorr.", "correction."): one for name, one in load_file(file).items()}
        save_file(tensors, file, {"state": json.dumps(numbers)})
    db = sqlite3.connect(run / "rounds.sqlite")
    db.execute("ALTER TABLE rounds RENAME COLUMN server_rate TO rate")
    db.execute("ALTER TABLE participants RENAME COLUMN descent TO rate")
    db.execute("PRAGMA user_version = 1")
    db.close()
    facts = json.loads((run / "run.json").read_text())
    facts.pop("format")
    facts.pop("fingerprint")
    (run / "run.json").write_text(json.dumps(facts))


@pytest.mark.parametrize(
    "changes", [{}, {"ditto": {"lambda": 0.5}}, FEDCORR, FEDCORR | {"ditto": {}, "local": {"mixup": 1.0}}]
)
@pytest.mark.parametrize("stopped", [2, 4])
def test_a_run_begun_before_goes_on(changes: dict[str, Any], stopped: int, tmp_path: Path) -> None:
    config = config_from(BASE | changes)
    whole = list(adafed.simulate(config, directory=tmp_path / "whole"))
    half = adafed.simulate(config, directory=tmp_path / "half")
    list(islice(half, stopped))
    half.close()
    put_back(tmp_path / "half")
    read = summarise(tmp_path / "half")
    assert read.rounds == stopped
    assert read.final["mean"] is not None
    rest = list(adafed.simulate(config, directory=tmp_path / "half"))
    assert [record.norm for record in rest] == [record.norm for record in whole[stopped:]]
    models = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("half", "whole")]
    assert models[0] == models[1]
    assert summarise(tmp_path / "half").final == summarise(tmp_path / "whole").final
