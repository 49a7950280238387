"""A power cut: what was not waited for is gone, and the run goes on from what was, to the same bits."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from runs_alike import assert_same, experiment, rows

from adafed.config.configuration import Config
from adafed.engines.local.simulate import simulate

# Forks a process for every life of the run, which is killed after so many rounds; then the power is cut.
KEEPER = """
import json, os, signal, sys
import torch
torch.set_num_threads(1)
from adafed.runs import directory
from adafed.config.loading import load_config
from adafed.engines.local.simulate import simulate

directory.DURABLE_EVERY = float(sys.argv[4])
config, where, synced = load_config(sys.argv[1]), sys.argv[2], os.environ["FORGETFUL"]

def cut():
    for folder, _, names in os.walk(where):
        for name in names:
            path = os.path.join(folder, name)
            known = os.path.join(synced, str(os.stat(path).st_ino))
            content = open(known, "rb").read() if os.path.exists(known) else b""
            with open(path, "rb+") as file:  # not another file: its number stays
                file.truncate(0)
                file.write(content)

for rounds in json.loads(sys.argv[3]):
    heard, told = os.pipe()
    child = os.fork()
    if child == 0:
        done = []
        for record in simulate(config, directory=where):
            done.append(record.round)
            os.write(told, f"{record.round}\\n".encode())
            if len(done) == rounds:
                os.kill(os.getpid(), signal.SIGKILL)
        os._exit(0)
    os.close(told)
    with os.fdopen(heard) as lines:
        done = [int(line) for line in lines]
    _, status = os.waitpid(child, 0)
    print(json.dumps([os.waitstatus_to_exitcode(status), done[:1], done[-1:]]), flush=True)
    cut()
"""


@pytest.fixture
def shim(tmp_path: Path) -> Path:
    compiler = shutil.which("cc")
    if compiler is None or sys.platform != "linux":
        pytest.skip("a forgetful disk needs a C compiler and Linux")
    made = tmp_path / "forgetful.so"
    source = Path(__file__).with_name("forgetful.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", str(made), str(source), "-ldl"], check=True)
    return made


def lives(folder: Path, shim: Path, config: Config, plan: list[int], every: float) -> list[Any]:
    (folder / "keeper.py").write_text(KEEPER)
    (folder / "experiment.toml").write_text(config.to_toml())
    (folder / "synced").mkdir()
    command = [sys.executable, "keeper.py", "experiment.toml", "run", json.dumps(plan), str(every)]
    environment = os.environ | {"LD_PRELOAD": str(shim), "FORGETFUL": str(folder / "synced")}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.slow
@pytest.mark.parametrize("every", [0.0, 0.2, 1e9])
def test_a_power_cut_costs_rounds_and_never_the_run(tmp_path: Path, shim: Path, every: float) -> None:
    """With checkpoints that wait for the disk always, now and then, and only at the first."""
    config = experiment(rounds=16, client={"rules": ["scaffold"]})
    list(simulate(config, directory=tmp_path / "whole"))
    found = lives(tmp_path, shim, config, [1, 4, 3, 5, 10**6, 10**6], every)
    assert [code for code, _, _ in found[:3]] == [-9, -9, -9]
    assert found[-2][0] == 0
    assert found[-1] == [0, [], []]  # what had ended stays so
    begun = [first[0] for _, first, _ in found if first]
    assert begun[0] == 1
    if every == 0.0:  # nothing but the round under way
        ends = [last[0] for _, _, last in found if last]
        assert begun[1:] == [end + 1 for end in ends[:-1]]
    if every == 1e9:  # back to what waited for the disk when the run was opened
        assert max(begun) < 16
        assert len(set(begun)) < len(begun)
    assert_same(tmp_path / "whole", tmp_path / "run")
    assert len(rows(tmp_path / "run")["rounds"]) == 16


def test_without_waiting_the_disk_forgets(tmp_path: Path, shim: Path) -> None:
    """The shim itself: what the tests above would see if nothing were waited for."""
    script = (
        "import os\n"
        "for name in ('synced', 'not'):\n"
        "    with open(name, 'w') as file:\n"
        "        file.write('first')\n"
        "        file.flush()\n"
        "        os.fsync(file.fileno()) if name == 'synced' else None\n"
        "        file.write(', second')\n"
        "print(os.stat('synced').st_ino, os.stat('not').st_ino)\n"
    )
    (tmp_path / "kept").mkdir()
    environment = os.environ | {"LD_PRELOAD": str(shim), "FORGETFUL": str(tmp_path / "kept")}
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True)
    synced, never = done.stdout.split()
    assert (tmp_path / "kept" / synced).read_text() == "first"
    assert not (tmp_path / "kept" / never).exists()
