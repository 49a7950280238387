"""Flower: any rule as a strategy, a client that tells what rules need, and experiments run on Flower's engines.

Nothing else of the package imports this one, so `import adafed` works without flwr.
"""

from adafed.errors import AdafedError

try:
    import flwr.serverapp.strategy as _needed  # noqa: F401
except ModuleNotFoundError as error:
    raise AdafedError(f"adafed.flower needs flwr 1.21 or newer ({error}); pip install 'adafed[flower]'") from None

from adafed.flower.client import ClientData, fair_client
from adafed.flower.experiment import experiment_client, experiment_server
from adafed.flower.strategy import FairStrategy

__all__ = ["ClientData", "FairStrategy", "experiment_client", "experiment_server", "fair_client"]
