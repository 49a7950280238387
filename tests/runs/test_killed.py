"""Runs that are killed with -9, run out of disk or lose a worker, and go on to the same bits."""

from __future__ import annotations

import gc
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import cycle
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from runs_alike import assert_same, experiment, rows

from adafed import AdafedError
from adafed.config.configuration import Config, config_from
from adafed.config.loading import load_config
from adafed.engines.local.simulate import simulate

# Imports once, then forks a process for every life of the run: {"kill": seconds} kills it from outside after that
# time, {"point": [name, nth]} makes it kill itself at the nth call of a function, {} lets it live.
KEEPER = """
import json, os, signal, sys, time, types
import torch
torch.set_num_threads(1)
from adafed.runs import checkpoints, directory, store
from adafed.server import row_files
from adafed.engines import visiting
from adafed import files
from adafed.config.loading import load_config
from adafed.engines.local.simulate import simulate

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

def arm(name, nth):
    owner, attribute, when = {
        "rows committed": (store.Store, "add", "after"),
        "checkpoint half written": (checkpoints, "save_tensors", "half"),
        "checkpoint before its rename": (checkpoints, "save_tensors", "rename"),
        "checkpoint renamed": (checkpoints, "save_tensors", "after"),
        "what a client keeps renamed": (visiting, "save_tensors", "after"),
        "what a client keeps before its rename": (visiting, "save_tensors", "rename"),
        "a remembered update written": (row_files.RowFile, "add", "after"),
        "what clients kept before removed": (directory.RunDirectory, "_drop_old_kept", "after"),
    }[name]
    original, calls = getattr(owner, attribute), [0]
    def wrapped(*args, **kwargs):
        calls[0] += 1
        if calls[0] < nth or (attribute == "save_tensors" and "config" in str(args[0])):
            return original(*args, **kwargs)
        if when == "after":
            original(*args, **kwargs)
            die()
        if when == "half":
            args[0].with_name(f".{args[0].name}.{os.getpid()}.partial").write_bytes(b"half")
            die()
        files.os = types.SimpleNamespace(**vars(os) | {"replace": die})
        original(*args, **kwargs)
    setattr(owner, attribute, wrapped)

config, where = load_config(sys.argv[1]), sys.argv[2]
for life in json.loads(sys.argv[3]):
    heard, told = os.pipe()
    child = os.fork()
    if child == 0:
        if "point" in life:
            arm(*life["point"])
        for record in simulate(config, directory=where):
            os.write(told, b".")
        os._exit(0)
    os.close(told)
    if "kill" in life:  # so long after so many rounds: by the clock alone a busy machine would see too few or too many
        rounds, delay = life["kill"]
        while rounds > 0 and os.read(heard, 1):
            rounds -= 1
        time.sleep(delay)
        os.kill(child, signal.SIGKILL)
    os.close(heard)
    _, status = os.waitpid(child, 0)
    print(json.dumps(os.waitstatus_to_exitcode(status)), flush=True)
"""


SCAFFOLD = {"client": {"rules": ["scaffold"]}}  # which the server and every client know something of


def lives(tmp_path: Path, config: Config, plan: list[dict[str, Any]]) -> list[int]:
    (tmp_path / "keeper.py").write_text(KEEPER)
    (tmp_path / "experiment.toml").write_text(config.to_toml())
    command = [sys.executable, "keeper.py", "experiment.toml", "run", json.dumps(plan)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    return [int(line) for line in done.stdout.split()]


@pytest.fixture
def uninterrupted(tmp_path: Path) -> Callable[[Config], Path]:
    def run(config: Config) -> Path:
        list(simulate(config, directory=tmp_path / "whole"))
        return tmp_path / "whole"

    return run


@pytest.mark.slow
def test_killed_at_twenty_random_moments(tmp_path: Path, uninterrupted: Callable[[Config], Path]) -> None:
    config = experiment(rounds=160, **SCAFFOLD)
    whole = uninterrupted(config)
    random = torch.Generator().manual_seed(20)
    rounds = torch.randint(0, 3, (20,), generator=random).tolist()
    delays = (torch.rand(20, generator=random) * 0.02).tolist()
    codes = lives(tmp_path, config, [*({"kill": one} for one in zip(rounds, delays, strict=True)), {}])
    assert codes[-1] == 0
    assert codes.count(-signal.SIGKILL) >= 10  # the run may end before the last of them
    assert_same(whole, tmp_path / "run")
    assert not list((tmp_path / "run").rglob("*.partial"))


POINTS = (
    "rows committed",
    "checkpoint half written",
    "checkpoint before its rename",
    "checkpoint renamed",
    "what a client keeps renamed",
    "what a client keeps before its rename",
    "what clients kept before removed",
    "a remembered update written",
)


@pytest.mark.slow
def test_killed_between_any_two_writes(tmp_path: Path, uninterrupted: Callable[[Config], Path]) -> None:
    config = experiment(rounds=10, **SCAFFOLD)
    whole = uninterrupted(config)
    plan = [{"point": [point, nth]} for nth in (1, 2) for point in POINTS]
    codes = lives(tmp_path, config, [*plan, {}])
    assert codes[-1] == 0
    assert set(codes[:8]) == {-signal.SIGKILL}
    assert_same(whole, tmp_path / "run")
    assert not list((tmp_path / "run").rglob("*.partial"))


@pytest.mark.slow
def test_killed_while_training_on_augmented_images_and_while_everyone_personalises(
    tmp_path: Path, uninterrupted: Callable[[Config], Path]
) -> None:
    config = experiment(
        rounds=8,
        data={"name": "digits", "flat": False},
        partition={"name": "dirichlet", "clients": 6, "beta": 0.5, "minimum": 20},
        model={"name": "cnn", "channels": [2, 3], "dense": 8},
        cohort={"count": 2},
        augment={"padding": 1, "flip": True},
        ditto={"at_end": "everyone"},
    )
    whole = uninterrupted(config)
    assert len(list((whole / "clients").glob("last-*"))) == 6
    kept = "what a client keeps renamed"
    # Two files a round, then six at the end: after two rounds or three, the 13th and later the 6th are of the end.
    plan = [{"kill": [1, 0.01]}, {"kill": [1, 0.0]}, {"point": [kept, 13]}, {"point": [kept, 6]}]
    codes = lives(tmp_path, config, [*plan, {}])
    assert codes[-1] == 0
    assert codes[2:4] == [-signal.SIGKILL] * 2
    assert_same(whole, tmp_path / "run")


SCRIPT = """
import sys
from adafed.config.loading import load_config
from adafed.engines.local.simulate import simulate
for record in simulate(load_config(sys.argv[1]), directory=sys.argv[2]):
    print(record.round, flush=True)
"""


def started(tmp_path: Path, config: Config) -> subprocess.Popen[str]:
    (tmp_path / "experiment.toml").write_text(config.to_toml())
    command = [sys.executable, "-c", SCRIPT, "experiment.toml", "run"]
    return subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_killed_with_workers(tmp_path: Path, uninterrupted: Callable[[Config], Path], patience: float) -> None:
    """The main process, while two workers are at work: they leave, nobody else gets in meanwhile, and it goes on."""
    config = experiment(rounds=400, run={"workers": 2}, evaluation={"every": 50})
    process = started(tmp_path, config)
    assert process.stdout is not None
    assert process.stdout.readline() == "1\n"
    with pytest.raises(AdafedError, match="in use by another process"):
        next(simulate(config, directory=tmp_path / "run"))
    workers = psutil.Process(process.pid).children()
    assert len(workers) == 2
    process.kill()
    process.communicate()
    gone, alive = psutil.wait_procs(workers, timeout=patience)
    assert (len(gone), alive) == (2, [])
    shorter = config.changed(rounds=len(rows(tmp_path / "run")["rounds"]) + 3, run={"workers": 0})
    list(simulate(shorter, directory=tmp_path / "run"))
    assert_same(uninterrupted(shorter), tmp_path / "run")


@pytest.mark.slow
def test_a_worker_that_dies_is_replaced_and_no_bit_changes(
    tmp_path: Path, uninterrupted: Callable[[Config], Path], caplog: pytest.LogCaptureFixture
) -> None:
    """One is killed; three rounds on the other, older than the one in its place, has an error of its own."""
    config = experiment(rounds=7, run={"workers": 2})
    records = simulate(config, directory=tmp_path / "run")
    next(records)
    first, second = psutil.Process().children()
    os.kill(first.pid, signal.SIGKILL)
    assert [next(records).round for _ in range(3)] == [2, 3, 4]
    os.kill(second.pid, signal.SIGSEGV)
    assert [record.round for record in records] == [5, 6, 7]
    assert [f"ended (signal {death.value}" in caplog.text for death in (signal.SIGKILL, signal.SIGSEGV)] == [True, True]
    assert caplog.text.count("another takes its place") == 2
    assert not psutil.Process().children()
    assert not list((tmp_path / "run").rglob("*.partial"))
    assert_same(uninterrupted(config.changed(run={"workers": 0})), tmp_path / "run")


@pytest.mark.slow
def test_a_worker_that_is_stopped_is_replaced_when_patience_ends(
    tmp_path: Path, uninterrupted: Callable[[Config], Path], caplog: pytest.LogCaptureFixture
) -> None:
    config = experiment(rounds=4, run={"workers": 2, "patience": 20.0})
    records = simulate(config, directory=tmp_path / "run")
    next(records)
    stopped = psutil.Process().children()[1]
    stopped.suspend()
    assert [record.round for record in records] == [2, 3, 4]
    assert not stopped.is_running()
    assert f"(process {stopped.pid}) was stopped; in " in caplog.text
    assert "was stopped and did not answer for 20 s" in caplog.text
    assert_same(uninterrupted(config.changed(run={"workers": 0})), tmp_path / "run")


DEADLY = """
import os, signal, sys
from torch import nn

class Deadly(nn.Module):
    def __init__(self, input_shape, classes):
        super().__init__()
        self.layer = nn.Linear(input_shape[0], classes)

    def forward(self, x):
        if {when} and os.path.basename(sys.argv[0]) == "worker.py":
            os.kill(os.getpid(), signal.SIGKILL)
        return self.layer(x)
"""


@pytest.fixture
def deadly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], str]]:
    """A model that ends the worker it is in, when so."""

    def made(when: str) -> str:
        (tmp_path / "deadly_for_tests.py").write_text(DEADLY.replace("{when}", when))
        monkeypatch.syspath_prepend(str(tmp_path))
        return "deadly_for_tests:Deadly"

    yield made
    sys.modules.pop("deadly_for_tests", None)


@pytest.mark.slow
def test_a_client_that_ends_two_processes_is_left_out_of_the_round_and_named(
    tmp_path: Path, deadly: Callable[[str], str], caplog: pytest.LogCaptureFixture
) -> None:
    sizes = "x.shape[0] == 24 and self.training"  # the one client with so many samples
    data = {"name": "deadly_data_for_tests:make"}
    (tmp_path / "deadly_data_for_tests.py").write_text(
        "import numpy as np\n"
        "def make():\n"
        "    r = np.random.default_rng(0)\n"
        "    sizes = enumerate((20, 30, 40, 50))\n"
        "    return {str(k): (r.random((n, 3), np.float32), np.arange(n) % 2) for k, n in sizes}\n"
    )
    config = config_from(
        {"rounds": 2, "data": data, "model": {"name": deadly(sizes)}, "rule": "fedavg", "run": {"workers": 2},
         "split": {"validation": 0.0, "test": 0.2}, "local": {"batch_size": "full", "together": "never"},
         "server": {"loss": "running"}, "evaluation": {"improvement_every": 0}}
    )  # fmt: skip
    for record in simulate(config, directory=tmp_path / "run"):
        assert [one.dropped is None for one in record.participants] == [True, False, True, True]
        assert "ended (signal 9" in str(record.participants[1].dropped)
        assert "the second process to do so" in str(record.participants[1].dropped)
        coefficients = [one.coefficient for one in record.participants if one.coefficient is not None]
        assert sum(coefficients) == pytest.approx(1.0)
    assert "not tried again" in caplog.text
    sys.modules.pop("deadly_data_for_tests", None)


@pytest.mark.slow
@pytest.mark.parametrize("when", ["self.training", "not self.training"])
def test_where_no_client_can_be_trained_or_one_cannot_be_measured_the_run_ends_in_a_sentence(
    tmp_path: Path, deadly: Callable[[str], str], when: str
) -> None:
    config = experiment(rounds=2, cohort={"count": 2}, ditto={}, memory={"rounds": 0}, run={"workers": 1})
    config = config.changed(model={"name": deadly(when)}, server={"loss": "running"})
    with pytest.raises(AdafedError, match=r"^worker 0 ended \(signal 9.*the run can be resumed.*$") as told:
        list(simulate(config, directory=tmp_path / "run"))
    assert "\n" not in str(told.value)
    assert not psutil.Process().children()


# A full disk


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = shutil.which("mount")
    made = mount is not None and subprocess.run(
        [mount, "-t", "tmpfs", "-o", "size=2m", "none", str(folder)], capture_output=True, check=False
    ).returncode == 0  # fmt: skip
    if not made:
        pytest.skip("a small disk cannot be mounted here")
    yield folder
    gc.collect()  # the state of a run that has failed holds maps of its files
    subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.parametrize("space", [150_000, 400_000, 420_000, 450_000, 480_000, 520_000, 600_000])
def test_a_full_disk_ends_in_a_sentence_and_loses_nothing(
    small_disk: Path, space: int, uninterrupted: Callable[[Config], Path]
) -> None:
    """Filled to leave so many bytes, which run out in another place each time."""
    config = experiment(rounds=8, model={"name": "mlp", "hidden": [600]})
    directory = small_disk / "run"
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"0" * (2 * 2**20 - space))
    with pytest.raises(AdafedError, match=r"full|could not be written") as told:
        list(simulate(config, directory=directory))
    assert "\n" not in str(told.value)
    ballast.unlink()
    list(simulate(config, directory=directory))
    assert_same(uninterrupted(config), directory)


def test_a_full_disk_is_told_for_every_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no small disk can be had: the checkpoint's rename fails."""
    config = experiment(rounds=3)
    records = simulate(config, directory=tmp_path / "run")
    next(records)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("adafed.files.os.replace", full)
    with pytest.raises(AdafedError, match=r"the disk is full.*free some space and resume"):
        next(records)
    monkeypatch.undo()
    assert not list((tmp_path / "run").rglob("*.partial"))
    assert len(list((tmp_path / "run" / "checkpoints").iterdir())) == 1
    assert load_config(tmp_path / "run" / "config.toml") == config.completed()
    assert [record.round for record in simulate(config, directory=tmp_path / "run")] == [2, 3]


def test_a_folder_that_has_become_read_only_is_told_and_loses_nothing(
    small_disk: Path, uninterrupted: Callable[[Config], Path]
) -> None:
    config, directory = experiment(rounds=6), small_disk / "run"
    list(simulate(config.changed(rounds=3), directory=directory))
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    try:
        with pytest.raises(AdafedError, match=r"could not be written: Read-only file system$"):
            list(simulate(config, directory=directory))
    finally:
        subprocess.run(["mount", "-o", "remount,rw", str(small_disk)], check=True)
    assert [record.round for record in simulate(config, directory=directory)] == [4, 5, 6]
    assert_same(uninterrupted(config), directory)


def test_a_clock_that_jumps_changes_nothing(
    tmp_path: Path, uninterrupted: Callable[[Config], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = experiment(rounds=6)
    whole = uninterrupted(config)
    jumps = cycle([0.0, 4e9, 1.0, 2e9, -5.0])
    monkeypatch.setattr("time.time", lambda: next(jumps))
    monkeypatch.setattr("adafed.runs.checkpoints.monotonic", lambda: next(jumps))  # which never goes back: worse still
    records = simulate(config, directory=tmp_path / "run")
    for _ in range(3):
        next(records)
    records.close()
    list(simulate(config, directory=tmp_path / "run"))
    assert_same(whole, tmp_path / "run")
