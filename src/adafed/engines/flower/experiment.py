"""An experiment's TOML on Flower: the server and the client that do there what `adafed.simulate` does here.

The loop is the simulator's, clients are trained by the same `Station`, rounds land in the same run directory. A node
with `partition-id=i` and `num-partitions=n` holds the clients i, i + n, i + 2n, ... of the federation.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from functools import lru_cache
from logging import getLogger
from pathlib import Path
from typing import Any

from flwr.app import Context, Message, MetricRecord
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from adafed.config.configuration import Config, config_from
from adafed.config.loading import load_config
from adafed.engines.flower.client import reply
from adafed.engines.flower.engine import FlowerEngine
from adafed.engines.flower.replies import CLIENT, SAMPLES
from adafed.engines.flower.work import answered, evaluated, trained
from adafed.engines.station import Station, one_thread
from adafed.errors import AdafedError
from adafed.rounds.cohort import Sampler
from adafed.rounds.loop import Loop
from adafed.rounds.records import RoundRecord
from adafed.rounds.round import ServerHalf
from adafed.runs.directory import RunDirectory
from adafed.server.state import ServerState

log = getLogger("flwr")
Settings = dict[str, Any]


def experiment_server(experiment: str | Path | Config, **settings: Any) -> ServerApp:
    """A ServerApp that runs the experiment.

    Args:
        experiment: A TOML file, the name of a packaged experiment, or a configuration.
        **settings: In place of the run config: `run-dir`, `nodes`, `timeout` and `evaluate-every`.

    Returns:
        The `app` that a Flower project names as its serverapp.
    """
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        config, told = _told(experiment, context, settings)
        every = told.get("evaluate-every")
        run_experiment(grid, config, Path(str(told.get("run-dir") or Path("runs") / config.name / "flower")),
                       nodes=int(told.get("nodes", 0)), timeout=float(told.get("timeout", 3600.0)),
                       evaluate_every=None if every is None else int(every))  # fmt: skip

    return app


def experiment_client(experiment: str | Path | Config, **settings: Any) -> ClientApp:
    """A ClientApp that does the work of the clients its node holds.

    Args:
        experiment: The same as the server's.
        **settings: In place of the run config.

    Returns:
        The `app` that a Flower project names as its clientapp.
    """
    app = ClientApp()

    @app.query()
    def query(message: Message, context: Context) -> Message:
        station = _station(_told(experiment, context, settings)[0])
        if "config" in message.content.config_records:
            with one_thread():
                return reply(message, answered(station, message))
        mine = _held(context, len(station.federation.ids))
        sizes = [int(station.federation.train_sizes[client]) for client in mine]
        return reply(message, {"metrics": MetricRecord({CLIENT: mine, SAMPLES: sizes})} if mine else {})

    @app.train()
    def train(message: Message, context: Context) -> Message:
        config, told = _told(experiment, context, settings)
        with one_thread():
            return reply(message, trained(_station(config), message, context, _folder(told)))

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        config, told = _told(experiment, context, settings)
        with one_thread():
            return reply(message, evaluated(_station(config), message, context, _folder(told)))

    return app


def run_experiment(
    grid: Grid,
    config: Config,
    directory: Path,
    *,
    nodes: int = 0,
    timeout: float = 3600.0,
    evaluate_every: int | None = None,
    watch: Callable[[RoundRecord], None] | None = None,
    stopped: Callable[[], bool] = bool,
) -> ServerState:
    """The server's side of the experiment, from where the run directory stands to its last round.

    The run begins once `nodes` nodes are connected, by default one for each client. An evaluation is another phase of a
    round: `evaluate_every` has the last word on how many there are (0: one, after the last round; -1: none). Once
    `stopped` says so, the round under way is the last one; by default it never does.
    """
    if config.parts.lies:
        raise AdafedError("[attack] is the simulator's alone, and these clients are real; leave it out on Flower")
    station = Station(config)
    ids, sizes = station.federation.ids, station.federation.train_sizes
    sampler = Sampler(config.cohort, ids, sizes, config.derived_seeds().sampling)
    kept = RunDirectory.opened(directory, config, station.federation, grouped=1, engine="flower")
    try:
        half = ServerHalf.of(config, ids, kept.rows, station.model.length)
        first = half.first_state(station.initial, station.model.length)
        state = kept.restored(lambda state: half.unfit(state, first)) or first
        log.info("rule %s, server rate %g, %s", half.server.rule, half.server.rate, half.server.optimizer)
        if state.round:
            log.info("going on after round %d", state.round)
        engine = FlowerEngine(grid, station, half, nodes or len(ids), timeout)
        loop = Loop(config, half, sampler, state, engine, kept, evaluate_every)
        loop.measure_again()
        for record in loop.rounds():
            _tell(record, config.rounds)
            if watch is not None:
                watch(record)
            if stopped() and record.round < config.rounds:  # after the last round there is only the model to write
                break
        else:
            kept.finish(station.model, loop.state)
        return loop.state
    finally:
        kept.close()


def _tell(record: RoundRecord, rounds: int) -> None:
    log.info("[ROUND %d/%d] done", record.round, rounds)
    for one in record.participants:
        if one.dropped:
            log.warning("round %d: client %s left out: %s", record.round, one.client, one.dropped)
    if record.skipped is not None:
        log.warning("round %d changed nothing: %s", record.round, record.skipped)


def _held(context: Context, clients: int) -> list[int]:
    node = context.node_config
    if "partition-id" not in node or "num-partitions" not in node:
        raise AdafedError(
            'the node does not know its part; start it with --node-config "partition-id=0 num-partitions=3"'
        )
    return list(range(int(node["partition-id"]), clients, int(node["num-partitions"])))


def _folder(told: Settings) -> str | None:
    """Where a node keeps what is its clients'; `personal-dir` is the name of version 0.1."""
    folder = told.get("client-dir") or told.get("personal-dir")
    return str(folder) if folder else None


def _told(experiment: str | Path | Config, context: Context, settings: Settings) -> tuple[Config, Settings]:
    """The configuration, with the run config's `set` on top; and the run's and the node's own settings."""
    told: Settings = {**context.run_config, **settings}
    own = ("client-dir", "personal-dir")
    told |= {key: value for key, value in context.node_config.items() if key in own}
    if isinstance(experiment, Config):
        return experiment, told
    return load_config(experiment, str(told.get("set") or "").split()), told


def _station(config: Config) -> Station:
    """Kept between messages where the process is."""
    return _stations(config.to_toml())


@lru_cache(maxsize=1)
def _stations(toml: str) -> Station:
    return Station(config_from(tomllib.loads(toml)))
