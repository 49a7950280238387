"""The run directory: what it holds, and what it refuses."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from adafed import AdafedError
from adafed.config.configuration import Config, config_from
from adafed.config.loading import load_config
from adafed.config.merging import merged
from adafed.engines.local.simulate import Simulation, simulate
from adafed.runs import checkpoints
from adafed.runs.store import Store
from adafed.server.saved import digest


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
        assert (read.norm, read.rho, read.server_rate, read.notes) == (
            told.norm,
            told.rho,
            told.server_rate,
            told.notes,
        )
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
    with pytest.raises(AdafedError, match=r"holds checkpoints but no config\.toml; restore it"):
        list(simulate(experiment(), directory=tmp_path / "run"))


def test_files_that_are_no_runs_are_left_alone(tmp_path: Path) -> None:
    mine = [tmp_path / name for name in ("clients/diary.txt", "clients/old/1-2.safetensors", "work/.x.1.partial")]
    mine += [tmp_path / "checkpoints" / "round-of-golf.safetensors", tmp_path / ".notes.partial"]
    for file in mine:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("mine")
    list(simulate(experiment(ditto={"lambda": 0.5}), directory=tmp_path / "new"))
    for file in mine:
        there = tmp_path / "new" / file.relative_to(tmp_path)
        there.parent.mkdir(parents=True, exist_ok=True)
        there.write_text("mine")
    left = [
        tmp_path / "new" / name
        for name in ("clients/0-9.safetensors", "checkpoints/.round-00000009.safetensors.7.partial")
    ]
    for file in left:
        file.write_text("of a killed round")
    list(simulate(experiment(ditto={"lambda": 0.5}, rounds=4), directory=tmp_path / "new"))
    assert all((tmp_path / "new" / file.relative_to(tmp_path)).read_text() == "mine" for file in mine)
    assert not any(file.exists() for file in left)


@pytest.mark.parametrize("name", ["config.toml", "rounds.sqlite", "model.safetensors"])
def test_a_file_of_somebody_elses_is_not_overwritten(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("mine")
    with pytest.raises(AdafedError, match=rf"holds a {name} that is no run's; choose another directory"):
        list(simulate(experiment(), directory=tmp_path))
    assert (tmp_path / name).read_text() == "mine"


def test_fewer_rounds_than_there_are_are_refused_and_nothing_is_changed(tmp_path: Path) -> None:
    list(simulate(experiment(), directory=tmp_path / "run"))
    with pytest.raises(AdafedError, match=r"holds 3 rounds, more than the rounds = 2 asked for"):
        list(simulate(experiment(rounds=2), directory=tmp_path / "run"))
    assert load_config(tmp_path / "run" / "config.toml").rounds == 3


def test_personal_models_that_lie_on_flowers_nodes_are_not_looked_for_here(tmp_path: Path) -> None:
    run = tmp_path / "run"
    list(simulate(experiment(ditto={}), directory=run))
    facts = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps(facts | {"engine": "flower"}))
    with pytest.raises(AdafedError, match=r"was begun with --engine flower; go on with the same"):
        list(simulate(experiment(ditto={}, rounds=4), directory=run))


def test_a_checkpoint_that_cannot_be_read_now_is_not_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = tmp_path / "run"
    list(simulate(experiment(), directory=run))

    def exhausted(*_: Any, **__: Any) -> Any:
        raise OSError(24, "Too many open files")

    with monkeypatch.context() as patched:
        patched.setattr(checkpoints, "safe_open", exhausted)
        with pytest.raises(AdafedError, match=r"cannot be read: Too many open files; nothing was changed"):
            list(simulate(experiment(rounds=4), directory=run))
    assert [record.round for record in simulate(experiment(rounds=4), directory=run)] == [4]


def test_rows_or_checkpoints_that_are_gone_are_told_and_nothing_is_lost(tmp_path: Path) -> None:
    run = tmp_path / "run"
    list(simulate(experiment(), directory=run))
    shutil.copytree(run, tmp_path / "copy")
    for file in run.glob("rounds.sqlite*"):
        file.unlink()
    with pytest.raises(AdafedError, match=r"holds checkpoints but no rounds\.sqlite; restore it"):
        list(simulate(experiment(rounds=4), directory=run))
    shutil.rmtree(tmp_path / "copy" / "checkpoints")
    with pytest.raises(AdafedError, match=r"holds 3 rounds and no checkpoint to go on from"):
        list(simulate(experiment(rounds=4), directory=tmp_path / "copy"))
    assert load_config(tmp_path / "copy" / "config.toml").rounds == 3
    store = Store(tmp_path / "copy" / "rounds.sqlite", read_only=True)
    assert store.last_round() == 3
    store.close()


def test_a_run_whose_checkpoints_are_all_torn_is_not_begun_again_unasked(tmp_path: Path) -> None:
    run = tmp_path / "run"
    list(simulate(experiment(), directory=run))
    for file in (run / "checkpoints").iterdir():
        file.write_bytes(file.read_bytes()[:50])
    with pytest.raises(AdafedError, match=r"no checkpoint in .* is whole; move the run away to begin again"):
        list(simulate(experiment(rounds=4), directory=run))
    store = Store(run / "rounds.sqlite", read_only=True)
    assert store.last_round() == 3
    store.close()


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


def test_what_clients_that_were_dropped_kept_is_not_left_behind(tmp_path: Path) -> None:
    lying = {"client": {"rules": ["scaffold"]}, "attack": {"use": ["nan"], "clients": ["0"]}}
    for record in simulate(experiment(rounds=7, cohort={"count": 4}, **lying), directory=tmp_path / "run"):
        files = [file.name.partition("-")[0] for file in (tmp_path / "run" / "clients").iterdir()]
        assert "0" not in files
        assert len(files) <= 3 * 3, record.round  # the newest, and those that a power cut could send us back to


def test_a_run_without_its_rows_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    list(simulate(experiment(), directory=tmp_path / "run"))
    (tmp_path / "run" / "rounds.sqlite").unlink()
    with pytest.raises(AdafedError, match=r"holds checkpoints but no rounds\.sqlite; restore it"):
        list(simulate(experiment(rounds=4), directory=tmp_path / "run"))
    assert not (tmp_path / "run" / "rounds.sqlite").exists()


def test_a_directory_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(AdafedError, match="could not be written: "):
        list(simulate(experiment(), directory=tmp_path / "file" / "run"))


def test_a_damaged_database_is_told(tmp_path: Path) -> None:
    list(simulate(experiment(), directory=tmp_path / "run"))
    (tmp_path / "run" / "rounds.sqlite").write_bytes(b"not a database" * 100)
    with pytest.raises(AdafedError, match=r"rounds\.sqlite: .*the file may be damaged"):
        list(simulate(experiment(), directory=tmp_path / "run"))


def test_labels_and_resumed_rounds_are_recorded(tmp_path: Path) -> None:
    from adafed.page import gathered
    from adafed.page.body import sections

    config = config_from({"rounds": 3, "model": "logistic", "run": {"workers": 0},
                          "partition": {"name": "shards", "clients": 5, "shards": 2}})  # fmt: skip
    rounds = simulate(config, directory=tmp_path / "run")
    next(rounds)
    rounds.close()
    described = tmp_path / "run" / "run.json"
    assert "resumed" not in json.loads(described.read_text())
    assert "<td>no</td>" in sections(gathered([tmp_path / "run"]))["trust"]
    for _ in range(2):  # the second time there is nothing left to do
        list(simulate(config, directory=tmp_path / "run"))
        assert len(json.loads(described.read_text())["resumed"]) == 1
    (run,) = gathered([tmp_path / "run"]).runs
    assert f"after round {run.facts['resumed'][0]}" in sections(gathered([tmp_path / "run"]))["trust"]
    assert run.clients is not None
    assert run.clients.labels is not None
    store = Store(tmp_path / "run" / "rounds.sqlite", read_only=True)
    trained = {one.client: one.samples for one in store.participants(3)}
    store.close()
    assert {run.clients.ids[k]: sum(held.values()) for k, held in run.clients.labels.items()} == trained


def _edited(file: Path, **changes: Any) -> None:
    """A checkpoint with tensors or metadata changed; None takes one away. What is changed is told in its digest."""
    from safetensors import safe_open
    from safetensors.torch import save_file

    with safe_open(file, framework="pt") as content:
        told = dict(content.metadata())
    tensors = load_file(file)
    numbers = json.loads(told["state"])
    for name, value in changes.items():
        where = numbers if name in ("round", "length", "kept", "rule", "losses", "guards", "memory") else tensors
        if value is None:
            where.pop(name.replace("__", "."))
        else:
            where[name.replace("__", ".")] = value
    told["state"] = json.dumps(numbers)
    told["digest"] = digest(tensors, told["state"])
    save_file(tensors, file, told)


ADAM = {"server": {"optimizer": "adam"}}
WRONG: dict[str, dict[str, Any]] = {
    "shorter": {"parameters": torch.zeros(3)},
    "other type": {"parameters": torch.zeros(57, dtype=torch.float64)},
    "whole numbers": {"parameters": torch.zeros(57, dtype=torch.int64)},
    "matrix": {"parameters": torch.zeros(57, 1)},
    "no parameters": {"parameters": None},
    "no moments": {"moment__first": None, "moment__second": None},
    "a moment too short": {"moment__second": torch.zeros(2)},
    "round as text": {"round": "3"},
    "another round": {"round": 2},
    "length of another": {"length": 10**9},
    "kept is a list": {"kept": [1]},
    "kept has words": {"kept": {"a": "b"}},
    "rule is a list": {"rule": [1]},
    "rule is another's": {"rule": {"normaliser": 1.0}},
    "losses as text": {"losses": {"1": "x"}},
    "guards as numbers": {"guards": {"0 lengths": 3}},
    "memory of nobody": {"memory": [["a", 1]]},
    "memory is a number": {"memory": 7},
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_checkpoint_is_refused_and_the_one_before_is_taken(wrong: str, tmp_path: Path) -> None:
    run, whole = tmp_path / "run", tmp_path / "whole"
    list(simulate(experiment(rounds=4, **ADAM), directory=whole))
    list(simulate(experiment(**ADAM), directory=run))
    older, newest = sorted((run / "checkpoints").iterdir())
    _edited(newest, **WRONG[wrong])
    assert [record.round for record in simulate(experiment(rounds=4, **ADAM), directory=run)] == [3, 4]
    assert (run / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
    older, newest = sorted((run / "checkpoints").iterdir())
    older.unlink()
    _edited(newest, **(WRONG[wrong] | ({"round": 9} if "round" in WRONG[wrong] else {})))
    with pytest.raises(AdafedError, match=r"no checkpoint in .* is this run's \(.*\); move the run away"):
        list(simulate(experiment(rounds=5, **ADAM), directory=run))


def test_another_seeds_checkpoint_is_refused_and_the_one_before_is_taken(tmp_path: Path) -> None:
    for name, seed in (("mine", 0), ("other", 1), ("whole", 0)):
        list(simulate(experiment(seed=seed), directory=tmp_path / name))
    mine, other = (max((tmp_path / name / "checkpoints").iterdir()) for name in ("mine", "other"))
    shutil.copy(other, mine)
    assert [record.round for record in simulate(experiment(), directory=tmp_path / "mine")] == [3]
    models = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("mine", "whole")]
    assert models[0] == models[1]


def test_a_checkpoint_that_was_changed_is_refused(tmp_path: Path) -> None:
    """Not-a-number where there was a number, as an edit or a lost page may leave it."""
    run = tmp_path / "run"
    list(simulate(experiment(), directory=run))
    newest = max((run / "checkpoints").iterdir())
    content = bytearray(newest.read_bytes())
    content[-4:] = b"\x00\x00\xc0\x7f"
    newest.write_bytes(content)
    assert [record.round for record in simulate(experiment(), directory=run)] == [3]


def test_a_run_without_fingerprint_goes_on(tmp_path: Path) -> None:
    """As older versions left it: neither run.json nor the checkpoints have one."""
    from safetensors import safe_open
    from safetensors.torch import save_file

    run = tmp_path / "run"
    list(simulate(experiment(), directory=run))
    shutil.copytree(run, tmp_path / "new")
    facts = json.loads((run / "run.json").read_text())
    facts.pop("fingerprint")
    (run / "run.json").write_text(json.dumps(facts))
    for file in (run / "checkpoints").iterdir():
        with safe_open(file, framework="pt") as content:
            told = {"state": content.metadata()["state"]}
        save_file(load_file(file), file, told)
    assert [record.round for record in simulate(experiment(rounds=4), directory=run)] == [4]
    assert [record.round for record in simulate(experiment(rounds=5), directory=run)] == [5]
    list(simulate(experiment(rounds=5), directory=tmp_path / "new"))
    models = [(one / "model.safetensors").read_bytes() for one in (run, tmp_path / "new")]
    assert models[0] == models[1]


def _rows(run: Path) -> list[Any]:
    import sqlite3

    db = sqlite3.connect(run / "rounds.sqlite")
    tables = ("rounds", "participants", "evaluations")
    found = [db.execute(f"SELECT * FROM {table} ORDER BY 1, 2, 3, 4").fetchall() for table in tables]
    db.close()
    return found


@pytest.mark.parametrize("every", [2, 3, 50])
@pytest.mark.parametrize("loss", ["before", "after"])
def test_a_prolonged_run_is_the_run_that_was_asked_for_longer(every: int, loss: str, tmp_path: Path) -> None:
    """What was measured because a round was the last goes when it is no longer the last."""
    changes = {"evaluation": {"every": every, "improvement_every": every}, "server": {"loss": loss}}
    list(simulate(experiment(rounds=3, **changes), directory=tmp_path / "run"))
    list(simulate(experiment(rounds=6, **changes), directory=tmp_path / "run"))
    list(simulate(experiment(rounds=6, **changes), directory=tmp_path / "whole"))
    assert _rows(tmp_path / "run") == _rows(tmp_path / "whole")


@pytest.mark.parametrize("workers", [0, 1])
def test_a_prolonged_run_with_personal_models_is_the_run_that_was_asked_for_longer(
    workers: int, tmp_path: Path
) -> None:
    """After its last round everybody makes a personal model once more, which other rounds' tables must not hold."""
    changes = {"ditto": {"lambda": 0.1}, "cohort": {"count": 1}, "run": {"workers": workers}}
    list(simulate(experiment(rounds=2, **changes), directory=tmp_path / "run"))
    list(simulate(experiment(rounds=4, **changes), directory=tmp_path / "run"))
    list(simulate(experiment(rounds=4, **changes), directory=tmp_path / "whole"))
    assert _rows(tmp_path / "run") == _rows(tmp_path / "whole")


def test_a_run_that_is_shortened_to_where_it_stands_is_evaluated_there(tmp_path: Path) -> None:
    changes = {"evaluation": {"every": 5, "improvement_every": 0}}
    stopped = simulate(experiment(rounds=10, **changes), directory=tmp_path / "run")
    for _ in range(3):
        next(stopped)
    stopped.close()
    assert list(simulate(experiment(rounds=3, **changes), directory=tmp_path / "run")) == []
    list(simulate(experiment(rounds=3, **changes), directory=tmp_path / "whole"))
    assert _rows(tmp_path / "run")[2] == _rows(tmp_path / "whole")[2]
