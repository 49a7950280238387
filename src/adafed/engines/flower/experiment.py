"""An experiment's TOML on Flower: the server and the client that do there what `adafed.simulate` does here.

Clients are trained by the same `Station`, sampled by the same `Sampler`, and rounds land in the same run directory. A
node with `partition-id=i` and `num-partitions=n` holds the clients i, i + n, i + 2n, ... of the federation.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import lru_cache
from logging import getLogger
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Context, Message, MetricRecord
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from adafed.config.sections import Config, config_from, load_config
from adafed.engines.flower.client import reply
from adafed.engines.flower.limits import for_flower
from adafed.engines.flower.replies import CLIENT, LOSS, SAMPLES, Reply
from adafed.engines.flower.strategy import FairStrategy
from adafed.engines.flower.work import RESTARTED, evaluated, layout, parts, prefix, trained
from adafed.engines.station import Station, one_thread
from adafed.errors import AdafedError
from adafed.metrics import improvement
from adafed.rounds.cohort import Sampler
from adafed.rounds.records import Evaluation, RoundRecord
from adafed.runs.directory import RunDirectory
from adafed.server.aggregate import Aggregate
from adafed.server.state import Server, ServerState

log = getLogger("flwr")
Settings = dict[str, Any]


def experiment_server(experiment: str | Path | Config, **settings: Any) -> ServerApp:
    """A ServerApp that runs the experiment. `settings` stand in for the run config: `run-dir`, `nodes`, `timeout`."""
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        config, told = _told(experiment, context, settings)
        run_experiment(grid, config, Path(str(told.get("run-dir") or Path("runs") / config.name / "flower")),
                       nodes=int(told.get("nodes", 0)), timeout=float(told.get("timeout", 3600.0)),
                       evaluate_every=int(told.get("evaluate-every", 0)))  # fmt: skip

    return app


def experiment_client(experiment: str | Path | Config, **settings: Any) -> ClientApp:
    """A ClientApp that does the work of the clients its node holds."""
    app = ClientApp()

    @app.query()
    def query(message: Message, context: Context) -> Message:
        station = _station(_told(experiment, context, settings)[0])
        mine = _held(context, len(station.federation.ids))
        sizes = [int(station.federation.train_sizes[client]) for client in mine]
        return reply(message, {"metrics": MetricRecord({CLIENT: mine, SAMPLES: sizes})} if mine else {})

    @app.train()
    def train(message: Message, context: Context) -> Message:
        config, told = _told(experiment, context, settings)
        with one_thread():
            return reply(message, trained(_station(config), message, context, told.get("personal-dir")))

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        config, told = _told(experiment, context, settings)
        with one_thread():
            return reply(message, evaluated(_station(config), message, context, told.get("personal-dir")))

    return app


def run_experiment(
    grid: Grid,
    config: Config,
    directory: Path,
    *,
    nodes: int = 0,
    timeout: float = 3600.0,
    evaluate_every: int = 0,
    watch: Callable[[RoundRecord], None] | None = None,
) -> ServerState:
    """The server's side of the experiment, from where the run directory stands to its last round.

    The run begins once `nodes` nodes are connected, by default one for each client.
    """
    station = Station(for_flower(config))
    kept = RunDirectory.opened(directory, config, station.federation, grouped=1, engine="flower")
    try:
        strategy = ExperimentStrategy(config, station, _Watched(kept, watch), nodes, evaluate_every)
        strategy.start(grid, layout(station).record(station.initial), num_rounds=config.rounds, timeout=timeout)
        assert strategy.state is not None
        kept.finish(station.model, strategy.state)
        return strategy.state
    finally:
        kept.close()


class ExperimentStrategy(FairStrategy):
    """The strategy of one configuration: its rule, its cohorts, its clients' names."""

    def __init__(
        self, config: Config, station: Station, keeper: _Watched, nodes: int = 0, evaluate_every: int = 0
    ) -> None:
        federation = station.federation
        super().__init__(
            loss=config.server.loss,
            local_lr=config.local.rate,
            min_available_nodes=nodes or len(federation.ids),
            statistics=[one.name for one in layout(station).statistics],
            evaluate_every=evaluate_every,
            checkpoint=keeper,
        )
        self.server = Server.made(
            (config.rule.name, config.rule.options),
            (config.server.optimizer.name, config.server.optimizer.options),
            (config.server.schedule.name, config.server.schedule.options),
            config.server.rate,
        )
        self.config = config
        self.ids = federation.ids
        self.handshake = True
        self.sampler = Sampler(config.cohort, self.ids, federation.train_sizes, config.derived_seeds().sampling)
        self.roster.samples = {client: int(size) for client, size in enumerate(federation.train_sizes)}

    def train_config(self, round: int, clients: list[int]) -> Settings:
        assert self._cohort is not None
        assert self.state is not None
        shares = [self._cohort.shares[client] for client in clients]
        return {"clients": clients, "shares": shares, "personal": self._personal(clients)}

    def evaluate_config(self, round: int, clients: list[int]) -> Settings:
        return {"clients": clients, "personal": self._personal(clients)}

    def stepped(self, replies: list[Reply], outcome: Aggregate | None, round: int) -> ServerState:
        state = super().stepped(replies, outcome, round)
        if self.config.ditto:
            for answer in replies:
                if answer.number(RESTARTED):
                    log.warning("round %d: client %s had lost its personal model", round, self.name_of(answer.client))
            state = replace(state, personal=state.personal | {str(answer.client): round for answer in replies})
        return state

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        metrics = super().aggregate_evaluate(server_round, replies)
        if self.record is not None:
            self.record = improved(self.record, {
                self.name_of(client): numbers[f"{prefix('train', False)}{LOSS}"]
                for client, numbers in self.evaluation.items()
                if f"{prefix('train', False)}{LOSS}" in numbers
            })  # fmt: skip
        return metrics

    def evaluations(self) -> tuple[Evaluation, ...]:
        found: list[Evaluation] = []
        for personal in (False, True) if self.config.ditto else (False,):
            for part in parts(self.config):
                found += self.evaluated(part, prefix(part, personal), personal=personal)
        return tuple(found)

    def name_of(self, client: int) -> str:
        return self.ids[client]

    def _personal(self, clients: list[int]) -> list[int]:
        """The round in which each client last wrote its Ditto model, 0 for never."""
        assert self.state is not None
        return [self.state.personal.get(str(client), 0) for client in clients]


def improved(record: RoundRecord, losses: Mapping[str, float]) -> RoundRecord:
    """The round with its cohort's training losses after the step, and rho_t from them."""
    members = tuple(
        one if one.dropped or one.before is None else one._replace(stepped=losses.get(one.client))
        for one in record.participants
    )
    both = [(one.before, one.stepped) for one in members if one.before is not None and one.stepped is not None]
    if not both or not np.isfinite(both).all():
        return replace(record, participants=members)
    better = improvement([before for before, _ in both], [after for _, after in both])
    return replace(record, participants=members, rho=better.rho, mean_decrease=better.mean_decrease)


class _Watched:
    """A run directory whose rounds are told to somebody as they are saved."""

    def __init__(self, directory: RunDirectory, watch: Callable[[RoundRecord], None] | None) -> None:
        self.directory = directory
        self.watch = watch

    def restored(self) -> ServerState | None:
        return self.directory.restored()

    def save(self, record: RoundRecord, state: ServerState) -> None:
        self.directory.save(record, state)
        if self.watch is not None:
            self.watch(record)


def _held(context: Context, clients: int) -> list[int]:
    node = context.node_config
    if "partition-id" not in node or "num-partitions" not in node:
        raise AdafedError(
            'the node does not know its part; start it with --node-config "partition-id=0 num-partitions=3"'
        )
    return list(range(int(node["partition-id"]), clients, int(node["num-partitions"])))


def _told(experiment: str | Path | Config, context: Context, settings: Settings) -> tuple[Config, Settings]:
    """The configuration, with the run config's `set` on top; and the run's and the node's own settings."""
    told: Settings = {**context.run_config, **settings}
    told |= {key: value for key, value in context.node_config.items() if key == "personal-dir"}
    if isinstance(experiment, Config):
        return experiment, told
    return load_config(experiment, str(told.get("set") or "").split()), told


def _station(config: Config) -> Station:
    """Kept between messages where the process is."""
    return _stations(config.to_toml())


@lru_cache(maxsize=1)
def _stations(toml: str) -> Station:
    return Station(config_from(tomllib.loads(toml)))
