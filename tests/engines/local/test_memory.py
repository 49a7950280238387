"""Memory follows the cohort and the budget for updates, not the federation or the cohort's numbers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from adafed.config.configuration import config_from

# Peak memory beyond what was there before the run, in MB. Work is done in the process itself.
MEASURED = """
import json, sys
from pathlib import Path
from adafed.config.loading import load_config
from adafed.engines.local.simulate import Simulation, simulate

def status(key):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(key + ":")) / 1024

small = load_config(sys.argv[1])
list(simulate(small))  # loads what any run loads
Path("/proc/self/clear_refs").write_text("5")
before = status("VmRSS")
with Simulation(load_config(sys.argv[2]), directory="run") as simulation:
    on_disk = simulation.engine.executor.updates.on_disk
    list(simulation.rounds())
print(json.dumps([status("VmHWM") - before, on_disk]))
"""


def peak(tmp_path: Path, content: dict[str, Any], warm: dict[str, Any]) -> tuple[float, bool]:
    for name, one in (("warm", warm), ("measured", content)):
        (tmp_path / f"{name}.toml").write_text(config_from(one).to_toml())
    command = [sys.executable, "-c", MEASURED, "warm.toml", "measured.toml"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    megabytes, on_disk = json.loads(done.stdout)
    return megabytes, on_disk


pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="peak memory is read from /proc"),
]


def test_a_federation_a_hundred_times_larger_takes_little_more(tmp_path: Path) -> None:
    """3,000 clients with the cohort of 30; their samples alone would be 70 MB."""
    base = {
        "rounds": 2,
        "data": {"name": "synthetic", "clients": 30, "samples": 100, "features": 60},
        "cohort": {"count": 10},
        "evaluation": {"every": 2},
        "run": {"workers": 0},
    }
    large = base | {"data": base["data"] | {"clients": 3000}}  # type: ignore[operator]
    megabytes, _ = peak(tmp_path, large, base)
    assert megabytes < 35


def test_updates_beyond_the_budget_stay_out_of_memory(tmp_path: Path) -> None:
    """400 clients with 250,000 numbers each, 400 MB, under a budget of 16 MB."""
    base = {
        "rounds": 1,
        "data": {"name": "synthetic", "clients": 3, "samples": 5, "features": 500, "classes": 5},
        "split": {"validation": 0.0},
        "model": {"name": "mlp", "hidden": [494]},
        "local": {"batch_size": "full"},
        "evaluation": {"improvement_every": 0},
        "run": {"workers": 0, "updates_mb": 16},
    }
    large = base | {"data": base["data"] | {"clients": 400}}  # type: ignore[operator]
    megabytes, on_disk = peak(tmp_path, large, base)
    assert on_disk
    assert megabytes < 120
