"""Lets the tests here import `pretend`, a Flower grid without processes, and keeps flwr from phoning home."""

import os
import sys
import warnings
from pathlib import Path

import pytest

os.environ |= {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1", "RAY_USAGE_STATS_ENABLED": "0"}
sys.path.insert(0, str(Path(__file__).parent))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Warnings are errors, except those that are raised inside flwr, ray and what they bring along."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            for module in ("flwr", "ray", "google", "grpc", "typer", "click"):
                item.add_marker(pytest.mark.filterwarnings(f"ignore::Warning:{module}.*"))


collect_ignore_glob: list[str] = []
try:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what its dependencies tell each other while they are imported
        import flwr.clientapp
        import flwr.serverapp.strategy  # noqa: F401
except ModuleNotFoundError:  # the extra is not installed
    collect_ignore_glob = ["test_*.py"]
