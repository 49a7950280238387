"""Algorithm 1, simulated on this machine: `simulate(config)` yields a record for each round."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from pathlib import Path

import torch

from adafed.client_rules.base import Orders, Told
from adafed.config.configuration import Config
from adafed.data.base import Federation
from adafed.engines.local.executor import open_executor
from adafed.engines.local.lying import LyingEngine
from adafed.engines.station import Station, liars_of
from adafed.engines.units import AskUnit, KeptFile, MeasureUnit, Report, TrainUnit
from adafed.errors import AdafedError
from adafed.rounds.cohort import Sampler
from adafed.rounds.loop import Asked, Collected, Engine, Loop, Wanted
from adafed.rounds.records import RoundRecord, Scores
from adafed.rounds.replies import ACCURACY, AFTER, HELD_OUT, LOSS, NOTHING, RUNNING, STEPS, Reply
from adafed.rounds.round import ServerHalf
from adafed.runs.directory import RunDirectory
from adafed.server.state import ServerState
from adafed.training.local import Assignment
from adafed.training.stacked import groups

MEASURED_TOGETHER = 1024  # samples of neighbouring clients measured in one go


def simulate(
    config: Config, *, directory: str | Path | None = None, federation: Federation | None = None
) -> Generator[RoundRecord, None, None]:
    """Run the experiment and yield each round's record as it ends.

    Args:
        config: What `config_from` or `load_config` returns.
        directory: Every round is saved there, and a directory that holds rounds already is continued, to the same bits
            as if it had never stopped. None: nothing is kept.
        federation: In place of the configuration's data, as `adafed.data.ArraysFederation` makes one of arrays; it is
            then used in this process only.

    Yields:
        A `RoundRecord` a round, once it is saved: participants, coefficients, rho and, where it was due, the evaluation
        of all clients. Whoever stops asking may go on later.

    Raises:
        AdafedError: For a mistake in the configuration or the data, before the first round; and later where the disk is
            full or the workers cannot go on.

    Examples:
        >>> import adafed
        >>> config = adafed.config_from({"rounds": 2, "run": {"workers": 0}})
        >>> [record.round for record in adafed.simulate(config)]
        [1, 2]
    """
    if not isinstance(config, Config):
        raise AdafedError(f"config is a {type(config).__name__}; give what adafed.config_from or load_config returns")
    with Simulation(config, directory=directory, federation=federation) as simulation:
        yield from simulation.rounds()


class Simulation:
    """A run in progress: the loop, the place where clients train, and where results go."""

    def __init__(
        self, config: Config, *, directory: str | Path | None = None, federation: Federation | None = None
    ) -> None:
        self.station = Station(config, federation)
        self.federation = self.station.federation
        ids, sizes = self.federation.ids, self.federation.train_sizes
        sampler = Sampler(config.cohort, ids, sizes, config.derived_seeds().sampling)
        self.directory = RunDirectory.opened(directory, config, self.federation, grouped=self.station.group)
        try:
            liars = liars_of(config, ids) if config.parts.lies else frozenset()
            half = ServerHalf.of(config, ids, self.directory.rows, self.station.model.length)
            first = half.first_state(self.station.initial, self.station.model.length)
            state = self.directory.restored(lambda state: half.unfit(state, first)) or first
            self.engine = LocalEngine(
                config, self.station, self.directory, half.largest(sampler.largest), shipped=federation is None
            )
        except BaseException:
            self.directory.close()
            raise
        engine: Engine = self.engine
        if config.parts.lies:
            engine = LyingEngine(engine, config.parts.lies, liars, config.derived_seeds().sampling)
        self.loop = Loop(config, half, sampler, state, engine, self.directory)

    @property
    def state(self) -> ServerState:
        return self.loop.state

    def __enter__(self) -> Simulation:
        return self

    def __exit__(self, *_: object) -> None:
        self.engine.close()
        self.directory.close()

    def rounds(self) -> Iterator[RoundRecord]:
        self.loop.measure_again()
        yield from self.loop.rounds()
        self.directory.finish(self.station.model, self.state)


class LocalEngine:
    """Clients trained in processes of this machine. Who is trained or measured together is decided here, from the
    configuration and the cohort alone."""

    def __init__(
        self, config: Config, station: Station, directory: RunDirectory, largest: int, *, shipped: bool
    ) -> None:
        self.config = config
        self.station = station
        self.sizes = station.federation.train_sizes
        self.directory = directory
        self.executor = open_executor(config, station, largest, directory.path, shipped=shipped)
        self.processes = self.executor.processes
        self.at_once = 1
        self._units: list[TrainUnit] = []  # of the last training

    def close(self) -> None:
        self.executor.close()

    def begin(self, asked: Asked, state: ServerState, broadcast: torch.Tensor) -> None:
        lr, tasks = self.config.local.rate(asked.round), asked.tasks
        clients, shares = [task.client for task in tasks], [task.share for task in tasks]
        samples = [int(self.sizes[client]) for client in clients]
        self._units = []
        size = 1 if any(task.orders for task in tasks) else self.station.group  # who is told something is trained alone
        for places in groups(clients, samples, shares, size):
            work = tuple(Assignment(clients[p], asked.round, lr, shares[p]) for p in places)
            kept = tuple(self._kept(clients[p], state, asked.round) for p in places) if self.config.keeps else ()
            orders = tuple(tasks[p].orders for p in places) if any(tasks[p].orders for p in places) else ()
            self._units.append(TrainUnit(work, tuple(places), asked.before, asked.after, kept, orders))
        self.executor.begin(self._units, broadcast)

    def replies(self) -> Collected:
        reports = sorted((one for unit in self.executor.reports() for one in unit), key=lambda report: report.client)
        model, count, rows, visiting = self.station.model, len(reports), self.executor.updates, self.station.visiting
        lost, sent = dict(self.executor.lost), rows.tensor.unbind(0)  # in the order of the clients
        if lost:  # views, for the rows may lie in a file because they do not fit in memory
            row_of = {work.client: row for unit in self._units for work, row in zip(unit.work, unit.rows, strict=True)}
            sent = tuple(sent[row_of[report.client]] for report in reports)
        sent = sent[:count]
        updates = [row[: model.length] for row in sent]
        statistics: Sequence[torch.Tensor] = [torch.empty(0)] * count
        if model.statistics:
            statistics = [row[model.length : visiting.numbers] for row in sent]
        vectors = [visiting.sent(row) for row in sent] if visiting.sends else [NOTHING] * count
        replies = [
            Reply(report.client, report.samples, updates[k], statistics[k], _numbers(report), report.told, vectors[k])
            for k, report in enumerate(reports)
        ]
        return Collected(replies, lost, rows.rows(count, model.length) if count and not lost else None)

    def measure(self, wanted: Sequence[Wanted], state: ServerState) -> list[list[Scores]]:
        found: list[list[Scores]] = []
        made = False  # whether clients have their last own models: once, whatever is measured with them
        for one in wanted:
            if one.last and not made:
                for client in one.clients:  # where the run had ended before, and went on
                    self.directory.last_model(client).unlink(missing_ok=True)
            units = self._as_trained(one) if one.as_trained else self._neighbours(one, state, made)
            found.append([score for unit in self.executor.measure(units, state.parameters) for score in unit])
            made = made or one.last
        return found

    def tried(self, wanted: Wanted, states: Sequence[ServerState]) -> list[list[Scores]]:
        return [scores for state in states for scores in self.measure([wanted], state)]

    def ask(
        self, rule: str, clients: Sequence[int], orders: Sequence[Mapping[str, Orders]], state: ServerState
    ) -> list[tuple[int, Told]]:
        units = [AskUnit(client, rule, own) for client, own in zip(clients, orders, strict=True)]
        return list(zip(clients, self.executor.ask(units, state.parameters), strict=True))

    def _kept(self, client: int, state: ServerState, round: int | None = None) -> KeptFile:
        last = state.kept.get(str(client))
        source = None if last is None else str(self.directory.kept(client, last))
        return KeptFile(source, None if round is None else str(self.directory.kept(client, round)))

    def _own(self, client: int, state: ServerState, wanted: Wanted, made: bool) -> KeptFile:
        """Where a client's own model is, and where it goes if it is made anew after the last round."""
        kept, file = self._kept(client, state), self.directory.last_model(client)
        if not wanted.last:
            return kept
        return KeptFile(str(file)) if made and file.exists() else kept._replace(target=None if made else str(file))

    def _as_trained(self, wanted: Wanted) -> list[MeasureUnit]:
        """On the same samples as before the step and in the same batches: a model that did not move must not seem to
        have got worse by rounding."""
        return [
            MeasureUnit(tuple(work.client for work in unit.work), wanted.part, orders=unit.orders)
            for unit in self._units
        ]

    def _neighbours(self, wanted: Wanted, state: ServerState, made: bool) -> list[MeasureUnit]:
        """Neighbours share a unit while their training samples number less than a batch's worth."""
        units: list[list[int]] = []
        filled = MEASURED_TOGETHER
        for client in wanted.clients:
            if filled >= MEASURED_TOGETHER:
                units.append([])
                filled = 0
            units[-1].append(client)
            filled += int(self.sizes[client])
        last, orders = wanted.last and not made, dict(zip(wanted.clients, wanted.orders, strict=False))
        return [
            MeasureUnit(
                tuple(unit), wanted.part, wanted.personal,
                tuple(self._own(client, state, wanted, made) for client in unit) if wanted.personal else (),
                tuple(orders[client] for client in unit) if last else (), last,
            )
            for unit in units
        ]  # fmt: skip


def _numbers(report: Report) -> dict[str, float]:
    numbers = {RUNNING: report.running, STEPS: report.steps}
    if report.before is not None:
        numbers[LOSS], numbers[ACCURACY] = report.before
    if report.after is not None:
        numbers[AFTER] = report.after.loss
    if report.held_out is not None:
        numbers[HELD_OUT] = report.held_out
    return numbers
