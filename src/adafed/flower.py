"""Flower: any rule as a strategy, a client that tells what rules need, and experiments run on Flower's engines.

Names are imported when they are used, so that `import adafed` and the command line work without flwr.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from adafed.errors import AdafedError

if TYPE_CHECKING:
    from adafed.engines.flower.client import NodeData, fair_client
    from adafed.engines.flower.experiment import experiment_client, experiment_server
    from adafed.engines.flower.strategy import FairStrategy

__all__ = ["FairStrategy", "NodeData", "experiment_client", "experiment_server", "fair_client"]
_WHERE = {
    "NodeData": "client",
    "FairStrategy": "strategy",
    "experiment_client": "experiment",
    "experiment_server": "experiment",
    "fair_client": "client",
}


def need_flower() -> None:
    """Raises one sentence where flwr is missing or too old."""
    try:
        import_module("flwr.serverapp.strategy")
    except ModuleNotFoundError as error:
        raise AdafedError(f"this needs flwr 1.21 or newer ({error}); pip install 'adafed[flower]'") from None


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    need_flower()
    return getattr(import_module(f"adafed.engines.flower.{_WHERE[name]}"), name)
