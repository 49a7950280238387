"""An experiment's TOML on Flower: the server and the client that do there what `adafed.simulate` does here.

Clients are trained by the same `Station`, sampled by the same `Sampler`, and rounds land in the same run directory. A
node with `partition-id=i` and `num-partitions=n` holds the clients i, i + n, i + 2n, ... of the federation.
"""

from __future__ import annotations

import tempfile
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from logging import getLogger
from pathlib import Path
from typing import Any

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from safetensors.torch import load_file

from adafed.aggregate import Aggregate
from adafed.client import Assignment, Report
from adafed.cohort import Sampler
from adafed.errors import AdafedError
from adafed.executors.station import MeasureUnit, Part, Personal, Station, TrainUnit, one_thread
from adafed.files import save_tensors
from adafed.flower.client import reply
from adafed.flower.replies import ACCURACY, AFTER, CLIENT, LOSS, RUNNING, SAMPLES, STEPS, Reply
from adafed.flower.strategy import FairStrategy
from adafed.metrics import improvement
from adafed.records import Evaluation, RoundRecord
from adafed.runs.config import Config, config_from, load_config
from adafed.runs.directory import RunDirectory
from adafed.server import Server, ServerState

log = getLogger("flwr")
Settings = dict[str, Any]
RESTARTED = "personal-restarted"


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
            return reply(message, _trained(_station(config), message, context, told.get("personal-dir")))

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        config, told = _told(experiment, context, settings)
        with one_thread():
            return reply(message, _evaluated(_station(config), message, context, told.get("personal-dir")))

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
    station = Station(config)
    kept = RunDirectory.opened(directory, config, station.federation, grouped=1)
    try:
        strategy = ExperimentStrategy(config, station, _Watched(kept, watch), nodes, evaluate_every)
        first = station.initial
        strategy.start(grid, _record(station, first), num_rounds=config.rounds, timeout=timeout)
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
            statistics=[name for name, _ in _buffers(station)],
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
        one if one.dropped or one.before is None else replace(one, stepped=losses.get(one.client))
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


# The client's side


def _trained(station: Station, message: Message, context: Context, folder: Any) -> dict[str, Any]:
    config, orders = station.config, _orders(message)
    round_ = int(orders["server-round"])
    received = _flat(station, message.content.array_records["arrays"])
    lr, told = config.local.rate(round_), config.server.loss
    content: dict[str, Any] = {}
    clients, shares, lasts = orders["clients"], orders["shares"], orders["personal"]
    for client, share, last in zip(clients, shares, lasts, strict=True):
        work = Assignment(int(client), round_, lr, float(share))
        row = torch.zeros(1, station.width)
        with _PersonalModel(context, int(client), int(last), folder) as own:
            personal = (own.moved_in(round_),) if config.ditto else ()
            # The loss and the accuracy of the received model always travel along: they cost no phase of their own.
            (report,) = station.train(TrainUnit((work,), (0,), True, told == "after", personal), received, row)
            restarted = own.restarted if config.ditto else False
        content[f"update:{client}"] = _record(station, row[0])
        content[f"metrics:{client}"] = MetricRecord(_numbers(report) | {RESTARTED: int(restarted)})
    return content


def _evaluated(station: Station, message: Message, context: Context, folder: Any) -> dict[str, Any]:
    config, orders = station.config, _orders(message)
    parameters = _flat(station, message.content.array_records["arrays"])
    content: dict[str, Any] = {}
    for client, last in zip(orders["clients"], orders["personal"], strict=True):
        numbers: dict[str, Any] = {CLIENT: int(client)}
        for personal in (False, True) if config.ditto else (False,):
            with _PersonalModel(context, int(client), int(last), folder) as own:
                measured: tuple[Part, ...] = parts(config) if personal else (*parts(config), "train")
                for part in measured:
                    source = (Personal(own.source()),) if personal else ()
                    (score,) = station.measure(MeasureUnit((int(client),), part, source), parameters)
                    found = {SAMPLES: score.samples, LOSS: score.loss, ACCURACY: score.accuracy}
                    told = {prefix(part, personal) + key: value for key, value in found.items()}
                    numbers |= {key: value for key, value in told.items() if value is not None}
        content[f"metrics:{client}"] = MetricRecord(numbers)
    return content


class _PersonalModel:
    """Ditto's model of one client. It lives in Flower's `Context.state`, which never leaves the node.

    That state ends with the run. A node that is given a `personal-dir` also keeps a file, so that a server which starts
    again finds the clients' models as of its own last round.
    """

    def __init__(self, context: Context, client: int, last: int, folder: Any) -> None:
        self.state = context.state
        self.client = client
        self.last = last
        self.key = f"personal:{client}"
        self.kept = Path(str(folder)) if folder else None
        self.restarted = False
        self._target: Path | None = None

    def __enter__(self) -> _PersonalModel:
        self._scratch = tempfile.TemporaryDirectory(prefix="adafed-")
        self.folder = self.kept or Path(self._scratch.name)
        self.folder.mkdir(parents=True, exist_ok=True)
        return self

    def __exit__(self, failed: object, *_: object) -> None:
        if failed is None and self._target is not None:
            self.state[self.key] = ArrayRecord({"personal": Array(load_file(self._target)["personal"].numpy())})
            self.state[f"{self.key}:round"] = MetricRecord({"round": self._round})
            for file in self.folder.glob(f"{self.client}-*.safetensors"):
                if int(file.stem.partition("-")[2]) < self.last:
                    file.unlink(missing_ok=True)
        self._scratch.cleanup()

    def source(self) -> str | None:
        """A file with the model as of the server's last round with this client; None for the first model."""
        if self.last == 0:
            return None
        file = self._file(self.last)
        remembered = self.state.metric_records.get(f"{self.key}:round", MetricRecord()).get("round")
        if file.exists() and remembered != self.last:
            return str(file)
        if self.key in self.state.array_records:
            own = torch.from_numpy(self.state.array_records[self.key]["personal"].numpy())
            save_tensors(file, {"personal": own})
            return str(file)
        self.restarted = True
        return None

    def moved_in(self, round: int) -> Personal:
        self._round, self._target = round, self._file(round)
        return Personal(self.source(), str(self._target))

    def _file(self, round: int) -> Path:
        return self.folder / f"{self.client}-{round}.safetensors"


def _numbers(report: Report) -> dict[str, Any]:
    found = {
        CLIENT: report.client,
        SAMPLES: report.samples,
        STEPS: report.steps,
        RUNNING: report.running,
        LOSS: report.before.loss if report.before else None,
        ACCURACY: report.before.accuracy if report.before else None,
        AFTER: report.after.loss if report.after else None,
    }
    return {key: value for key, value in found.items() if value is not None}


# Both sides


def _orders(message: Message) -> Mapping[str, Any]:
    return message.content.config_records["config"]


def parts(config: Config) -> tuple[Part, ...]:
    return ("test", "validation") if config.split.validation > 0 else ("test",)


def prefix(part: str, personal: bool) -> str:
    return f"{'personal-' if personal else ''}{part}-"


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


def _buffers(station: Station) -> Iterator[tuple[str, torch.Tensor]]:
    return ((name, one) for name, one in station.model.module.named_buffers() if one.is_floating_point())


def _shapes(station: Station) -> dict[str, tuple[int, ...]]:
    """In the order of the flat vector."""
    return station.model.shapes | {name: tuple(buffer.shape) for name, buffer in _buffers(station)}


def _record(station: Station, flat: torch.Tensor) -> ArrayRecord:
    arrays, start = {}, 0
    for name, shape in _shapes(station).items():
        count = int(torch.Size(shape).numel())
        arrays[name] = Array(flat[start : start + count].numpy().reshape(shape))
        start += count
    return ArrayRecord(arrays)


def _flat(station: Station, record: ArrayRecord) -> torch.Tensor:
    return torch.cat([torch.from_numpy(record[name].numpy()).reshape(-1) for name in _shapes(station)])
