"""The script that kills at random moments, a few times; by hand it does so two hundred times."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.slow
def test_a_few_kills_lose_nothing() -> None:
    command = [sys.executable, str(ROOT / "scripts" / "kills.py"), "--count", "6", "--only", "run,tune,download"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "6 kills, 0 faults" in done.stdout
