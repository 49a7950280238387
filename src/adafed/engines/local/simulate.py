"""Algorithm 1 of the paper, simulated: `simulate(config)` yields a record for each round."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from time import perf_counter

import numpy as np
import torch

from adafed.algebra.blocks import walking_with
from adafed.client_rules.fedcorr import FedCorr
from adafed.client_rules.fedcorr.correction import Known
from adafed.config.sections import Config
from adafed.data.base import Federation
from adafed.engines.local.executor import open_executor
from adafed.engines.station import Labels, MeasureUnit, Part, Personal, PredictUnit, Station, TrainUnit
from adafed.errors import NoClientLeft
from adafed.metrics import improvement
from adafed.rounds.cohort import Cohort, Sampler
from adafed.rounds.records import Evaluation, Participant, RoundRecord
from adafed.runs.directory import RunDirectory
from adafed.server.aggregate import Aggregate, aggregate
from adafed.server.state import Server, ServerState
from adafed.training.local import Assignment, Predicted, Report
from adafed.training.stacked import groups

MEASURED_TOGETHER = 1024  # samples of neighbouring clients measured in one go


def simulate(
    config: Config, *, directory: str | Path | None = None, federation: Federation | None = None
) -> Generator[RoundRecord, None, None]:
    """Run the experiment and yield each round's record as it ends.

    With a `directory` every round is saved there, and a directory that holds rounds already is continued, to the same
    bits as if it had never stopped. `federation` takes the place of the configuration's data; it is then used in this
    process only.
    """
    with Simulation(config, directory=directory, federation=federation) as simulation:
        yield from simulation.rounds()


class Simulation:
    """A run in progress: the server's state, the place where clients train, and where results go."""

    def __init__(
        self, config: Config, *, directory: str | Path | None = None, federation: Federation | None = None
    ) -> None:
        self.config = config
        self.station = Station(config, federation)
        self.federation = self.station.federation
        self.ids = self.federation.ids
        self.sizes = self.federation.train_sizes
        self.sampler = Sampler(config.cohort, self.ids, self.sizes, config.derived_seeds().sampling)
        self.server = Server.made(
            (config.rule.name, config.rule.options),
            (config.server.optimizer.name, config.server.optimizer.options),
            (config.server.schedule.name, config.server.schedule.options),
            config.server.rate,
        )
        self.fedcorr = self._fedcorr()
        self.units: list[TrainUnit] = []
        self.directory = RunDirectory.opened(directory, config, self.federation, grouped=self.station.group)
        try:
            self.state = self.directory.restored() or self._first_state()
            largest = self.fedcorr.largest if self.fedcorr else self.sampler.largest
            self.executor = open_executor(
                config, self.station, largest, self.directory.path, shipped=federation is None
            )
        except BaseException:
            self.directory.close()
            raise

    def __enter__(self) -> Simulation:
        return self

    def __exit__(self, *_: object) -> None:
        self.executor.close()
        self.directory.close()

    def rounds(self) -> Iterator[RoundRecord]:
        """Lines 2-15 of Algorithm 1. Clients begin a round while the server still saves the one before."""
        cohort = self._begin(self.state.round + 1)
        for t in range(self.state.round + 1, self.config.rounds + 1):
            clock = _Clock()
            reports = self._reports()
            clock.lap("train")
            outcome, skipped = self._aggregate(cohort, reports, t)  # lines 11-15: d_t
            self.state = self._stepped(cohort, reports, outcome, t)  # line 16: theta_{t+1}
            self.state = self._corrected(reports, t)
            clock.lap("server")
            stepped = self._losses_after_step(reports, t)
            clock.lap("improvement")
            evaluations = self._evaluate(t)
            clock.lap("evaluate")
            record = self._record(cohort, reports, outcome, skipped, stepped, evaluations, t)
            clock.lap("server")
            cohort = self._begin(t + 1)
            clock.lap("train")
            self.directory.save(record, self.state)
            clock.lap("save")
            yield replace(record, seconds=clock.laps)
        self.directory.finish(self.station.model, self.state)

    def _first_state(self) -> ServerState:
        known = self.fedcorr.fresh() if self.fedcorr else {}
        return ServerState(self.station.initial, self.station.model.length, correction=known)

    # Clients

    def _begin(self, t: int) -> Cohort:
        """Lines 3-9: the clients of the round have the model and train. After the last round, nobody."""
        cohort = self.fedcorr.cohort(t, self.state.correction) if self.fedcorr else self.sampler.cohort(t)
        if t > self.config.rounds:
            return cohort
        clients = cohort.answering
        lr, told = self.config.local.rate(t), self.config.server.loss
        before = told == "before" or "accuracies" in self.server.rule.needs or self._measures_improvement(t)
        shares = [cohort.shares[client] for client in clients]
        samples = [int(self.sizes[client]) for client in clients]
        self.units = []
        for positions in groups(clients, samples, shares, self.station.group):
            members = [clients[p] for p in positions]
            work = tuple(Assignment(clients[p], t, lr, shares[p], self._pull(clients[p], t)) for p in positions)
            personal = tuple(self._personal(client, t) for client in members) if self.config.ditto else ()
            told_after, suspected = told == "after", self.fedcorr is not None and self.fedcorr.stage(t) == 1
            unit = TrainUnit(work, tuple(positions), before, told_after, personal, self._labels(members), suspected)
            self.units.append(unit)
        self.executor.begin(self.units, self.state.parameters)
        return cohort

    def _reports(self) -> list[Report]:
        """Line 10: what the clients send back, their updates aside, which lie with the executor."""
        return sorted((report for unit in self.executor.reports() for report in unit), key=lambda r: r.client)

    def _personal(self, client: int, t: int | None = None) -> Personal:
        last = self.state.personal.get(str(client))
        source = None if last is None else str(self.directory.personal(client, last))
        return Personal(source, None if t is None else str(self.directory.personal(client, t)))

    # Server

    def _aggregate(self, cohort: Cohort, reports: list[Report], t: int) -> tuple[Aggregate | None, str | None]:
        if not reports:
            return None, "no client answered" if cohort.clients else "no client has joined yet"
        if self.station.model.statistics:  # those that are no numbers cost a client the round, as on Flower
            sent = self.executor.updates.array[: len(reports)]
            sent[~np.isfinite(sent[:, self.state.length :]).all(axis=1), 0] = np.nan
        # FedCorr's first stage averages, so what it leaves is no state of the rule that follows.
        fresh = self.fedcorr is not None and t <= self.fedcorr.first + 1
        try:
            with walking_with(self.executor.processes):
                outcome = aggregate(
                    self.fedcorr.rule(t, self.server.rule) if self.fedcorr else self.server.rule,
                    self.executor.updates.rows(len(reports), self.state.length),
                    losses=[report.told_loss(self.config.server.loss) for report in reports],
                    sizes=[report.samples for report in reports],
                    accuracies=None if reports[0].before is None else [_accuracy(report) for report in reports],
                    clients=[self.ids[report.client] for report in reports],
                    round=t,
                    local_lr=self.config.local.rate(t),
                    federation=len(self.ids),
                    state=None if fresh else self.state.rule_state,
                )
        except NoClientLeft as error:
            return None, str(error)
        return outcome, None

    def _stepped(self, cohort: Cohort, reports: list[Report], outcome: Aggregate | None, t: int) -> ServerState:
        statistics = None
        if outcome is not None and self.station.model.statistics:
            kept = [k for k, rate in enumerate(outcome.diagnostics.rates) if not np.isnan(rate)]
            if kept:  # by sample count, as the parameters of FedAvg
                weights = np.array([reports[k].samples for k in kept], dtype=np.float64)
                own = self.executor.updates.array[kept, self.state.length :]
                statistics = torch.from_numpy((weights / weights.sum()) @ own).to(torch.float32)
        state = self.server.step(self.state, outcome, statistics)
        if self.config.ditto:
            trained = {str(report.client): t for report in reports}
            state = replace(state, personal=state.personal | trained)
        return state

    # FedCorr

    def _fedcorr(self) -> FedCorr | None:
        config, seed = self.config, self.config.derived_seeds().sampling
        if config.fedcorr is None:
            return None
        return FedCorr(config.fedcorr, self.sampler, len(self.ids), config.rounds, seed)

    def _pull(self, client: int, t: int) -> float:
        return self.fedcorr.pull(t, client, self.state.correction) if self.fedcorr else 0.0

    def _labels(self, clients: Sequence[int]) -> tuple[Labels, ...]:
        return tuple(self.fedcorr.labels(client, self.state.correction) for client in clients) if self.fedcorr else ()

    def _corrected(self, reports: Sequence[Report], t: int) -> ServerState:
        if self.fedcorr is None:
            return self.state
        return replace(self.state, correction=self.fedcorr.learned(t, self.state.correction, reports, self._predicted))

    def _predicted(self, clients: Sequence[int], known: Known) -> list[Predicted]:
        assert self.fedcorr is not None
        units = [PredictUnit(client, self.fedcorr.labels(client, known)) for client in clients]
        return [one for unit in self.executor.predict(units, self.state.parameters) for one in unit]

    # Measuring

    def _measures_improvement(self, t: int) -> bool:
        every = self.config.evaluation.improvement_every
        return every > 0 and (t % every == 0 or t == self.config.rounds)

    def _losses_after_step(self, reports: list[Report], t: int) -> dict[int, float]:
        """The cohort's training losses with the new model, on the same samples as before and in the same batches: a
        model that did not move must not seem to have got worse by rounding."""
        if not reports or not self._measures_improvement(t):
            return {}
        units = [
            MeasureUnit(tuple(work.client for work in unit.work), "train", labels=unit.labels) for unit in self.units
        ]
        found = self.executor.measure(units, self.state.parameters)
        return {score.client: score.loss for unit in found for score in unit if score.loss is not None}

    def _measure_units(self, clients: list[int], part: Part, *, personal: bool = False) -> list[MeasureUnit]:
        """Neighbours share a unit while their training samples number less than a batch's worth."""
        units: list[list[int]] = []
        filled = MEASURED_TOGETHER
        for client in clients:
            if filled >= MEASURED_TOGETHER:
                units.append([])
                filled = 0
            units[-1].append(client)
            filled += int(self.sizes[client])
        return [
            MeasureUnit(tuple(unit), part, tuple(self._personal(c) for c in unit) if personal else ()) for unit in units
        ]

    def _evaluate(self, t: int) -> tuple[Evaluation, ...]:
        if t % self.config.evaluation.every and t != self.config.rounds:
            return ()
        everyone = list(range(len(self.ids)))
        parts: tuple[Part, ...] = ("test", "validation") if self.config.split.validation > 0 else ("test",)
        evaluations = []
        for personal in (False, True) if self.config.ditto else (False,):
            for part in parts:
                units = self._measure_units(everyone, part, personal=personal)
                found = self.executor.measure(units, self.state.parameters)
                scores = tuple((self.ids[score.client], score) for unit in found for score in unit)
                if any(score.samples for _, score in scores):
                    evaluations.append(Evaluation(part, personal, scores))
        return tuple(evaluations)

    def _record(
        self,
        cohort: Cohort,
        reports: list[Report],
        outcome: Aggregate | None,
        skipped: str | None,
        stepped: dict[int, float],
        evaluations: tuple[Evaluation, ...],
        t: int,
    ) -> RoundRecord:
        position = {report.client: k for k, report in enumerate(reports)}
        participants = []
        for client in cohort.clients:
            if client not in position:
                participants.append(Participant(self.ids[client], dropped="did not answer"))
                continue
            k = position[client]
            participants.append(_participant(self.ids[client], reports[k], outcome, k, stepped.get(client)))
        both = [(report.before.loss, stepped[report.client]) for report in reports
                if report.before is not None and report.client in stepped]  # fmt: skip
        finite = bool(both) and bool(np.isfinite(both).all())
        better = improvement([b for b, _ in both], [a for _, a in both]) if finite else None
        diagnostics = outcome.diagnostics if outcome else None
        return RoundRecord(
            round=t,
            local_lr=self.config.local.rate(t),
            server_rate=self.server.rate_of(t),
            participants=tuple(participants),
            norm=diagnostics.norm if diagnostics else None,
            mean_norm=diagnostics.mean_norm if diagnostics else None,
            condition=diagnostics.condition if diagnostics else None,
            negative=diagnostics.negative if diagnostics else None,
            rho=better.rho if better else None,
            mean_decrease=better.mean_decrease if better else None,
            skipped=skipped,
            notes=(diagnostics.notes if diagnostics else {})
            | (self.fedcorr.told(t, self.state.correction) if self.fedcorr else {}),
            evaluations=evaluations,
        )


def _accuracy(report: Report) -> float | None:
    return None if report.before is None else report.before.accuracy


def _participant(
    client: str, report: Report, outcome: Aggregate | None, position: int, stepped: float | None
) -> Participant:
    descent = coefficient = dropped = None
    if outcome is not None:
        dropped = outcome.diagnostics.dropped.get(client)
        coefficient = float(outcome.coefficients[position])
        descent = None if dropped else float(outcome.diagnostics.rates[position])
    return Participant(
        client=client,
        samples=report.samples,
        steps=report.steps,
        before=report.before.loss if report.before else None,
        after=report.after.loss if report.after else None,
        running=report.running,
        accuracy=_accuracy(report),
        stepped=stepped,
        coefficient=coefficient,
        descent=descent,
        dropped=dropped,
    )


class _Clock:
    """Seconds of each stage of a round."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._last = perf_counter()

    def lap(self, name: str) -> None:
        now = perf_counter()
        self.laps[name] = self.laps.get(name, 0.0) + now - self._last
        self._last = now
