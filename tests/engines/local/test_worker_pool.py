"""Worker processes: started once, told apart from this one by nothing but their number, and gone afterwards."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from adafed import AdafedError
from adafed.config.configuration import Config, config_from
from adafed.config.merging import merged
from adafed.engines.local.process import WorkerProcess
from adafed.engines.local.simulate import Simulation, simulate
from adafed.engines.local.worker_pool import AHEAD_BYTES


def experiment(**changes: Any) -> Config:
    base = {
        "rounds": 2,
        "data": {"name": "synthetic", "clients": 6, "samples": 20, "features": 5, "classes": 3},
        "model": {"name": "mlp", "hidden": [6]},
        "run": {"workers": 2},
    }
    return config_from(merged(base, changes))


USERS = """
import os
import torch
from torch import nn

class Failing(nn.Module):
    def __init__(self, input_shape, classes):
        super().__init__()
        self.layer = nn.Linear(input_shape[0], classes)

    def forward(self, x):
        if self.training and os.path.basename(__import__("sys").argv[0]) == "worker.py":
            raise ValueError("my own mistake")
        return self.layer(x)
"""


@pytest.mark.slow
def test_a_failing_model_is_told_with_its_traceback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "failing_for_tests.py").write_text(USERS)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(RuntimeError, match=r"a worker failed on client [\d, ]+:\n(.|\n)*my own mistake"):
        list(simulate(experiment(model={"name": "failing_for_tests:Failing"})))
    sys.modules.pop("failing_for_tests", None)
    assert not psutil.Process().children()


DATA = """
import os
import numpy as np

def make():
    count = 3 if os.path.basename(__import__("sys").argv[0]) == "worker.py" else 4
    return {str(k): (np.zeros((10, 2), np.float32), np.arange(10) % 2) for k in range(count)}
"""


@pytest.mark.slow
def test_samples_that_differ_from_process_to_process_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    random = DATA.replace("np.zeros((10, 2), np.float32)", "np.random.default_rng().random((10, 2), np.float32)")
    (tmp_path / "random_for_tests.py").write_text(random.replace("count = 3", "count = 4"))
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(AdafedError, match=r"gave other samples to a worker process .* a fixed seed"):
        list(simulate(experiment(data={"name": "function", "function": "random_for_tests:make"}, run={"workers": 1})))
    sys.modules.pop("random_for_tests", None)
    assert not psutil.Process().children()


@pytest.mark.slow
def test_data_that_differ_from_process_to_process_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "fickle_for_tests.py").write_text(DATA)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(AdafedError, match=r"gave 3 clients to a worker process and 4 to this one"):
        list(simulate(experiment(data={"name": "function", "function": "fickle_for_tests:make"}, run={"workers": 1})))
    sys.modules.pop("fickle_for_tests", None)
    assert not psutil.Process().children()


@pytest.mark.slow
def test_messages_larger_than_a_sockets_buffer_do_not_stop_both_ends() -> None:
    """Groups of thousands: a unit sent ahead while the worker is answering would make each wait for the other."""
    clients = 12_000
    config = experiment(
        rounds=1,
        data={"clients": clients, "samples": 4, "features": 1, "classes": 2},
        model={"name": "logistic"},
        local={"together": 3000, "batch_size": "full"},
        rule={"name": "fedavg"},
        evaluation={"improvement_every": 0},
        run={"workers": 1, "updates_mb": 1},
    )
    assert clients // 4 * 20 > AHEAD_BYTES
    with Simulation(config) as simulation:
        (record,) = simulation.rounds()
    assert len(record.participants) == clients


SLOW = """
import time

def make():
    open("at work", "w").close()
    time.sleep(60)
"""


@pytest.mark.slow
def test_a_worker_ends_with_the_main_process_in_the_middle_of_its_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it would still write would lie in the directory of the next run."""
    (tmp_path / "slow_for_tests.py").write_text(SLOW)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    config = experiment(data={"name": "function", "function": "slow_for_tests:make"})
    worker = WorkerProcess({"config": config.to_dict()}, (), 60.0)
    try:
        while not (tmp_path / "at work").exists():
            assert not worker.ended(0.05)
        worker.close()  # as the system does when the main process is killed
        assert worker.ended(20.0)
    finally:
        worker.kill()
