"""An experiment on Flower's simulation engine, which runs the nodes' ClientApps in Ray's processes on this machine."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from logging import WARNING, getLogger
from pathlib import Path
from threading import Event
from typing import Any, TypeVar

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from adafed.config.configuration import Config
from adafed.engines.flower.experiment import experiment_client, run_experiment
from adafed.engines.station import open_from
from adafed.errors import AdafedError
from adafed.rounds.records import RoundRecord
from adafed.runs.directory import CLIENTS

Answer = TypeVar("Answer")
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "OMP_NUM_THREADS": "1",  # clients work on one thread anyway
}


def simulate_on_ray(
    config: Config,
    directory: str | Path,
    *,
    nodes: int | None = None,
    watch: Callable[[RoundRecord], None] | None = None,
    stopped: Callable[[], bool] = bool,
) -> int:
    """Run or continue the experiment with `nodes` virtual SuperNodes, by default one for each client. Once `stopped`
    says so, the round under way is the last one. Returns the round that the run has come to.

    Flower runs the server in a thread of its own, and an interrupt meets this one, which serves the clients: whoever
    wants a run that can be interrupted catches the signal, so that the round under way has its clients to the end.
    """
    if find_spec("ray") is None:
        raise AdafedError("Flower's simulation engine needs ray; pip install 'adafed[flower]'")
    from flwr.simulation import run_simulation  # takes seconds

    count = nodes or len(open_from(config).ids)
    path = Path(directory).resolve()
    app, over, reached = ServerApp(), Event(), [0]

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        _let_go(grid, over)
        state = run_experiment(grid, config, path, nodes=count, watch=watch, stopped=stopped)
        reached[0] = state.round

    processes = config.run.workers if isinstance(config.run.workers, int) and config.run.workers else os.cpu_count()
    folder = {"client-dir": str(path / CLIENTS)} if config.keeps else {}
    with _calm():
        try:
            run_simulation(
                server_app=app,
                client_app=experiment_client(config, **folder),
                num_supernodes=count,
                backend_config={
                    "client_resources": {"num_cpus": 1.0, "num_gpus": 0.0},
                    "init_args": {"num_cpus": processes or 1, "log_to_driver": False, "include_dashboard": False},
                },
            )
        finally:
            over.set()
    return reached[0]


def _let_go(grid: Grid, over: Event) -> None:
    """Once the simulation is over, as by an interrupt, no node and no reply comes any more: the server's thread, which
    Python waits for at the end, must not wait for them until its timeout."""
    for name in ("get_node_ids", "pull_messages"):
        setattr(grid, name, _until(over, getattr(grid, name)))


def _until(over: Event, waited_for: Callable[..., Answer]) -> Callable[..., Answer]:
    def heeding(*given: Any) -> Answer:
        if over.is_set():
            raise AdafedError("the simulation is over")
        return waited_for(*given)

    return heeding


@contextmanager
def _calm() -> Iterator[None]:
    """Flower's and Ray's own talk is for their own users; what went wrong is told."""
    logger = getLogger("flwr")
    level, before = logger.level, {key: os.environ.get(key) for key in QUIET}
    os.environ.update({key: os.environ.get(key, value) for key, value in QUIET.items()})
    logger.setLevel(WARNING)
    logger.addFilter(_without_deprecations)
    try:
        yield
    finally:
        logger.removeFilter(_without_deprecations)
        logger.setLevel(level)
        for key, value in before.items():
            if value is None:
                os.environ.pop(key, None)


def _without_deprecations(record: object) -> bool:
    """`run_simulation` is announced to go; the versions this package admits all have it."""
    return "DEPRECATED FEATURE" not in str(getattr(record, "msg", ""))
