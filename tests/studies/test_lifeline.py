"""A child ends with its parent, however that ends and whether or not it knows of the child."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from adafed.studies.lifeline import VARIABLE, Lifeline, end_with_parent

CHILD = """
import time
from adafed.studies.lifeline import end_with_parent
end_with_parent()
print("up", flush=True)
time.sleep(600)
"""
PARENT = """
import os, subprocess, sys
from adafed.studies.lifeline import Lifeline
held = Lifeline()
child = subprocess.Popen([sys.executable, "-c", sys.argv[1]], stdout=subprocess.PIPE, text=True,
                         pass_fds=[held.descriptor], env=os.environ | held.environment)
assert child.stdout.readline() == "up\\n", "the child never lived"
print(child.pid, flush=True)
{end}
"""


@pytest.mark.parametrize("end", ["os._exit(0)", "os.kill(os.getpid(), 9)", "held.__exit__(); child.wait()"])
def test_a_child_ends_with_its_parent(end: str, patience: float) -> None:
    done = subprocess.run([sys.executable, "-c", PARENT.format(end=end), CHILD], stdout=subprocess.PIPE, text=True)
    child = int(done.stdout)  # nothing is printed for a child that never lived
    if psutil.pid_exists(child):
        assert not psutil.wait_procs([psutil.Process(child)], timeout=patience)[1]


def test_nobody_is_ended_without_a_lifeline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    end_with_parent()
    monkeypatch.setenv(VARIABLE, "99999")  # set by somebody who did not pass the descriptor on
    end_with_parent()


def test_leaving_closes_both_ends() -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    with Lifeline():
        pass
    assert len(list(Path("/proc/self/fd").iterdir())) == before
