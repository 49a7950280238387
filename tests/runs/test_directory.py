"""The run directory: what it holds, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from adafed import AdafedError
from adafed.runs.config import Config, config_from, load_config, merged
from adafed.runs.directory import require_same
from adafed.runs.store import Store
from adafed.simulate import Simulation, simulate


def experiment(**changes: Any) -> Config:
    base = {
        "rounds": 3,
        "data": {"name": "synthetic", "clients": 4, "samples": 20, "features": 5, "classes": 3},
        "model": {"name": "mlp", "hidden": [6]},
        "cohort": {"count": 3},
        "run": {"workers": 0},
    }
    return config_from(merged(base, changes))


def test_what_a_run_leaves(tmp_path: Path) -> None:
    config = experiment()
    with Simulation(config, directory=tmp_path / "run") as simulation:
        records = list(simulation.rounds())
        final, federation = simulation.state.parameters, simulation.federation
        named = simulation.station.model.module.state_dict()
    names = {path.name for path in (tmp_path / "run").iterdir()}
    assert names >= {"config.toml", "run.json", "rounds.sqlite", "checkpoints", "model.safetensors"}
    assert load_config(tmp_path / "run" / "config.toml") == config.completed()
    facts = json.loads((tmp_path / "run" / "run.json").read_text())
    assert facts["data"]["checksum"] == federation.checksum
    assert facts["trained_together"] == 50
    assert facts["versions"]["torch"] == torch.__version__
    assert len(list((tmp_path / "run" / "checkpoints").iterdir())) == 2
    model = load_file(tmp_path / "run" / "model.safetensors")
    assert model.keys() == named.keys()
    assert torch.equal(torch.cat([tensor.reshape(-1) for tensor in model.values()]).sort().values, final.sort().values)
    store = Store(tmp_path / "run" / "rounds.sqlite", read_only=True)
    kept = list(store.records())
    assert store.last_round() == 3
    store.close()
    for told, read in zip(records, kept, strict=True):
        assert read.participants == tuple(sorted(told.participants, key=lambda p: p.client))
        assert (read.norm, read.rho, read.rate, read.notes) == (told.norm, told.rho, told.rate, told.notes)
        assert [e.fairness for e in read.evaluations] == [e.fairness for e in told.evaluations]
        assert {(e.part, e.personal) for e in read.evaluations} == {(e.part, e.personal) for e in told.evaluations}


def test_a_finished_run_yields_nothing_more_and_can_be_prolonged(tmp_path: Path) -> None:
    list(simulate(experiment(), directory=tmp_path / "run"))
    assert list(simulate(experiment(), directory=tmp_path / "run")) == []
    assert [r.round for r in simulate(experiment(rounds=5), directory=tmp_path / "run")] == [4, 5]


def test_a_default_spelled_out_is_the_same_experiment_and_another_value_is_not(tmp_path: Path) -> None:
    list(simulate(experiment(rule="adafed"), directory=tmp_path / "run"))
    kept = load_config(tmp_path / "run" / "config.toml").rule.options
    assert list(simulate(experiment(rule={"name": "adafed", **kept}), directory=tmp_path / "run")) == []
    changed = {"name": "adafed", "gamma": kept["gamma"] + 1}
    with pytest.raises(AdafedError, match=r"holds another experiment: rule\.gamma was 2\.0 and is now 3\.0"):
        list(simulate(experiment(rule=changed), directory=tmp_path / "run"))


def test_another_experiment_is_refused(tmp_path: Path) -> None:
    list(simulate(experiment(), directory=tmp_path / "run"))
    with pytest.raises(AdafedError, match=r"holds another experiment: local\.lr was 0\.1 and is now 0\.2; choose"):
        list(simulate(experiment(local={"lr": 0.2}), directory=tmp_path / "run"))
    with pytest.raises(AdafedError, match=r"holds another experiment: ditto"):
        list(simulate(experiment(ditto={}), directory=tmp_path / "run"))


def test_where_the_data_lie_makes_no_other_experiment(tmp_path: Path) -> None:
    here, there = (
        config_from({"data": {"name": "cifar10", "dir": d, "verify": v}}) for d, v in (("a", True), ("b", False))
    )
    require_same(tmp_path, here, there)
    with pytest.raises(AdafedError, match=r"data\.name was 'cifar10' and is now 'fashion'"):
        require_same(tmp_path, here, config_from({"data": {"name": "fashion"}}))


def test_other_data_under_the_same_name_are_refused(tmp_path: Path) -> None:
    run = tmp_path / "run"
    list(simulate(experiment(), directory=run))
    facts = json.loads((run / "run.json").read_text())
    facts["data"]["checksum"] = "f" * 64
    (run / "run.json").write_text(json.dumps(facts))
    with pytest.raises(AdafedError, match=r"was begun on other data \(checksum ffffffffffff, now "):
        list(simulate(experiment(), directory=run))


def test_checkpoints_of_nobody_are_refused(tmp_path: Path) -> None:
    (tmp_path / "run" / "checkpoints").mkdir(parents=True)
    (tmp_path / "run" / "checkpoints" / "round-00000001.safetensors").write_bytes(b"x")
    with pytest.raises(AdafedError, match=r"holds checkpoints but no run\.json and config\.toml"):
        list(simulate(experiment(), directory=tmp_path / "run"))


@pytest.mark.parametrize("ditto", [None, {"lambda": 0.5}])
def test_a_torn_checkpoint_costs_one_round(tmp_path: Path, ditto: dict[str, float] | None) -> None:
    """As a power cut may leave it: the one before is whole, and so are the personal models it names."""
    changes = {"ditto": ditto} if ditto else {}
    whole, torn = tmp_path / "whole", tmp_path / "torn"
    list(simulate(experiment(rounds=6, **changes), directory=whole))
    records = simulate(experiment(rounds=6, **changes), directory=torn)
    for _ in range(4):
        next(records)
    records.close()  # type: ignore[attr-defined]
    newest = max((torn / "checkpoints").iterdir())
    newest.write_bytes(newest.read_bytes()[:100])
    assert [r.round for r in simulate(experiment(rounds=6, **changes), directory=torn)] == [4, 5, 6]
    mine, theirs = (load_file(run / "model.safetensors") for run in (whole, torn))
    assert all(torch.equal(mine[name], theirs[name]) for name in mine)


def test_a_directory_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(AdafedError, match="could not be written: "):
        list(simulate(experiment(), directory=tmp_path / "file" / "run"))


def test_a_damaged_database_is_told(tmp_path: Path) -> None:
    list(simulate(experiment(), directory=tmp_path / "run"))
    (tmp_path / "run" / "rounds.sqlite").write_bytes(b"not a database" * 100)
    with pytest.raises(AdafedError, match=r"rounds\.sqlite: .*the file may be damaged"):
        list(simulate(experiment(), directory=tmp_path / "run"))
