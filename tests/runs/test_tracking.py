"""Scalars of a run, live: the numbers of its rows, in TensorBoard and MLflow; what fails there costs no run."""

from __future__ import annotations

import json
import logging
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from adafed import AdafedError, config_from, simulate
from adafed.config.configuration import Config
from adafed.runs import tracking as module
from adafed.runs.store import Store
from adafed.runs.tracking import Tracking, scalars

SMALL = {
    "rounds": 4,
    "model": "logistic",
    "partition": {"name": "dirichlet", "clients": 5, "beta": 1.0},
    "evaluation": {"every": 2},
    "run": {"workers": 0},
}


def small(**track: str) -> Config:
    return config_from(SMALL | {"name": "small", "track": track})


def test_scalars_are_the_numbers_of_the_record(tmp_path: Path) -> None:
    for record in simulate(config_from(SMALL)):
        found = scalars(record)
        assert found["round/norm"] == record.norm
        assert found["round/rho"] == record.rho
        assert found["round/dropped"] == 0
        assert ("test/mean" in found) == (record.round % 2 == 0)
        evaluation = record.evaluation()
        if evaluation is not None:
            assert found["test/worst_10"] == pytest.approx(100 * evaluation.fairness.worst_10)


def curve(folder: Path, key: str) -> list[tuple[int, float]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder))
    events.Reload()
    return [(one.step, one.value) for one in events.Scalars(key)]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tensorboard_has_every_round_once_also_of_a_resumed_run(tmp_path: Path) -> None:
    config = small(tensorboard=str(tmp_path / "board"))
    rounds = simulate(config, directory=tmp_path / "runs" / "one")
    next(rounds)
    next(rounds)
    assert [step for step, _ in curve(tmp_path / "board" / "runs" / "one", "round/norm")][:1] in ([], [1])
    rounds.close()
    list(simulate(config, directory=tmp_path / "runs" / "one"))
    found = curve(tmp_path / "board" / "runs" / "one", "round/norm")
    assert [step for step, _ in found] == [1, 2, 3, 4]
    store = Store(tmp_path / "runs" / "one" / "rounds.sqlite", read_only=True)
    assert [value for _, value in found] == pytest.approx([record.norm for record in store.records()])
    store.close()


@pytest.mark.filterwarnings("ignore")
def test_mlflow_has_one_run_also_of_a_resumed_one(tmp_path: Path) -> None:
    from mlflow.tracking import MlflowClient

    address = f"sqlite:///{tmp_path / 'mlflow.db'}"
    config = small(mlflow=address)
    rounds = simulate(config, directory=tmp_path / "runs" / "one")
    next(rounds)
    rounds.close()
    client = MlflowClient(tracking_uri=address)
    experiment = client.get_experiment_by_name("small")
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.status == "KILLED"
    list(simulate(config, directory=tmp_path / "runs" / "one"))
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.status == "FINISHED"
    assert run.info.run_name == "runs/one"
    assert run.data.params["rule.name"] == "adafed"
    assert [one.step for one in client.get_metric_history(run.info.run_id, "round/norm")] == [1, 2, 3, 4]
    assert [one.step for one in client.get_metric_history(run.info.run_id, "test/worst_10")] == [2, 4]


def test_tracking_changes_no_bit_and_may_be_set_anew(tmp_path: Path) -> None:
    plain = [record.norm for record in simulate(config_from(SMALL), directory=tmp_path / "a" / "plain")]
    tracked = [record.norm for record in simulate(small(tensorboard=str(tmp_path / "board")))]
    assert tracked == plain
    list(
        simulate(
            config_from(SMALL | {"track": {"tensorboard": str(tmp_path / "b")}}), directory=tmp_path / "a" / "plain"
        )
    )


@pytest.mark.parametrize("key", ["tensorboard", "mlflow"])
def test_a_missing_extra_is_told(key: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("torch.utils.tensorboard", "mlflow.tracking"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(AdafedError, match=rf"pip install 'adafed\[{key}\]'"):
        list(simulate(small(**{key: str(tmp_path / "x")})))


@pytest.mark.parametrize("together", [True, False])
def test_every_run_has_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, together: bool) -> None:
    """Those of two studies shared `FedAvg/seed-0`, and which was which could not be told."""
    opened: list[Path] = []
    monkeypatch.setattr(module, "TensorBoard", lambda folder, after: opened.append(folder))
    monkeypatch.chdir(tmp_path)
    board = Path("runs/board" if together else "elsewhere/deep/board")
    directories = [Path("runs", *parts, "FedAvg", "seed-0") for parts in (("one",), ("two",), ("one", "two"), ())]
    for directory in directories:
        module.tracking(small(tensorboard=str(board)), directory, 0)
        module.tracking(small(tensorboard=str(tmp_path / board)), tmp_path / "runs" / ".." / directory, 2)
    first, again = opened[::2], opened[1::2]
    assert [tmp_path / folder for folder in first] == again  # however the two are written, as when a run goes on
    assert len(set(first)) == len(directories)
    assert all(folder.is_relative_to(board) for folder in first)
    if together:
        assert first[0] == Path("runs/board/one/FedAvg/seed-0")


def test_runs_without_a_directory_are_told_apart_by_the_experiment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[Path] = []
    monkeypatch.setattr(module, "TensorBoard", lambda folder, after: opened.append(folder))
    for name in ("one", "two"):
        module.tracking(config_from(SMALL | {"name": name, "track": {"tensorboard": str(tmp_path)}}), None, 0)
    assert len(set(opened)) == 2


class Pretended:
    """As MLflow's client is: told of an experiment when it was made, and refusing one twice."""

    inside = 0
    most = 0

    def __init__(self, tracking_uri: str) -> None:
        self._count(1)
        time.sleep(0.05)  # the tables of a new database
        self._count(-1)

    @classmethod
    def _count(cls, step: int) -> None:
        cls.inside += step
        cls.most = max(cls.most, cls.inside)

    def get_experiment_by_name(self, name: str) -> Any:
        return SimpleNamespace(experiment_id="1")

    def create_run(self, experiment: str, run_name: str) -> Any:
        return SimpleNamespace(info=SimpleNamespace(run_id=f"run of {experiment}"))

    def log_param(self, run: str, key: str, value: str) -> None:
        pass


@pytest.fixture
def pretended(monkeypatch: pytest.MonkeyPatch) -> type[Pretended]:
    class Own(Pretended):
        pass

    monkeypatch.setitem(sys.modules, "mlflow.tracking", SimpleNamespace(MlflowClient=Own))  # type: ignore[misc]
    return Own


@pytest.mark.parametrize("address", ["sqlite:///new/mlflow.db", "sqlite:///{}/mlflow.db", "mlruns", "mysql://one/two"])
def test_one_run_at_a_time_opens_what_has_no_server(
    pretended: type[Pretended], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    """Two that made the tables of a new database at once left one that no run could open."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(module.tempfile, "tempdir", str(tmp_path))
    config = small(mlflow=address.format(tmp_path))
    threads = [threading.Thread(target=module.tracking, args=(config, None, 0)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert pretended.most == 1
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_a_relative_and_a_whole_path_are_one_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with module._one_opens("sqlite:///mlflow.db"):
        (lock,) = tmp_path.iterdir()
    with module._one_opens(f"sqlite:///{tmp_path}/mlflow.db?timeout=3"):
        assert [lock] == list(tmp_path.iterdir())
    with module._one_opens("http://localhost:1"):
        assert not list(tmp_path.iterdir())


def test_an_experiment_that_another_run_has_just_made_is_taken(
    pretended: type[Pretended], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was not there when this run looked, and is when it would make it."""
    made: list[str] = []

    def look(self: Pretended, name: str) -> Any:
        return SimpleNamespace(experiment_id="the other's") if made else None

    def make(self: Pretended, name: str) -> str:
        made.append(name)
        raise ValueError(f"Experiment(name={name}) already exists")

    monkeypatch.setattr(pretended, "get_experiment_by_name", look)
    monkeypatch.setattr(pretended, "create_experiment", make, raising=False)
    opened = module.MLflow("http://localhost:1", small(), "one", None)
    assert opened._run == "run of the other's"
    monkeypatch.setattr(pretended, "get_experiment_by_name", lambda *_: None)
    with pytest.raises(AdafedError, match=r"track\.mlflow cannot be opened: .*already exists"):
        module.tracking(small(mlflow="http://localhost:1"), None, 0)


@pytest.mark.filterwarnings("ignore")
def test_an_address_that_cannot_be_opened_is_told(tmp_path: Path) -> None:
    with pytest.raises(AdafedError, match=r"track\.mlflow cannot be opened"):
        list(simulate(small(mlflow="nonsense://nowhere"), directory=tmp_path / "run"))


def test_a_place_that_is_lost_is_told_once_and_the_run_goes_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Lost:
        def add(self, scalars: dict[str, float], round: int) -> None:
            raise ConnectionError("gone")

        def close(self, whole: bool) -> None:
            raise ConnectionError("gone")

    monkeypatch.setattr("adafed.runs.directory.tracking", lambda *_: Tracking({"mlflow": Lost()}))
    with caplog.at_level(logging.WARNING, logger="adafed"):
        assert len(list(simulate(config_from(SMALL)))) == 4
    assert [record.getMessage() for record in caplog.records] == [
        "track.mlflow: ConnectionError: gone; the run goes on without it"
    ]


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"mlflow": 3}', '{"mlflow": {"address": "x"}}'])
def test_a_strange_memory_of_mlflow_is_none(tmp_path: Path, content: str) -> None:
    (tmp_path / module.REMEMBERED).write_text(content)
    known: Any = module.MLflow._known
    assert known(None, "x", tmp_path) is None
    assert known(None, "x", None) is None
    (tmp_path / module.REMEMBERED).write_text(json.dumps({"mlflow": {"address": "x", "run": "7"}}))
    assert known(None, "x", tmp_path) == "7"
