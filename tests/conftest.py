"""What every test shares: one thread for torch, hypothesis without a clock, and the hand-checked numbers."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, settings

torch.set_num_threads(1)

settings.register_profile("local", deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("local"), derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Slow tests first, else in their order: at the end no core waits for a long one that was begun last."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


@pytest.fixture(scope="session")
def patience() -> float:
    """Seconds to wait for another process: a machine may be busy, and a hung test should still end."""
    return 300.0


@pytest.fixture(scope="session")
def oracles() -> dict[str, Any]:
    """Numbers computed by hand or by independent code, for small inputs."""
    found: dict[str, Any] = json.loads((Path(__file__).parent / "oracles.json").read_text())
    return found
