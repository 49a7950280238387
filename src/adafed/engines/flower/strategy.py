"""FairStrategy: any registered rule as a strategy of Flower's Message API.

It is a subclass of `flwr.serverapp.strategy.Strategy`, so an existing app changes the line that makes its strategy. Its
clients send two more numbers in `metrics`: `loss`, that of the received model on their training samples, and
`client-id`, their own id. `adafed.flower.fair_client` does both.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from logging import getLogger
from pathlib import Path
from typing import Any

import numpy as np
import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from adafed.config.sections import CohortSection
from adafed.engines.flower.arrays import Arrays
from adafed.engines.flower.checkpoint import Keeper, StateKeeper
from adafed.engines.flower.replies import (
    ACCURACY,
    LOSS,
    LOSSES,
    SAMPLES,
    Limits,
    Reply,
    Screened,
    client_of,
    node_of,
    numbers_of,
    screened,
    suffixes,
)
from adafed.engines.flower.reporting import diagnostics, fairness_metrics, participants, recorded
from adafed.engines.flower.roster import Roster
from adafed.engines.station import Scores
from adafed.errors import AdafedError, NoClientLeft
from adafed.rounds.cohort import Cohort, Sampler
from adafed.rounds.records import Evaluation, RoundRecord
from adafed.server.aggregate import Aggregate, aggregate
from adafed.server.optimizers import ServerOptimizer, optimizer
from adafed.server.schedules import Schedule, schedule
from adafed.server.state import Server, ServerState
from adafed.server_rules import Rule, rule

log = getLogger("flwr")
POLL = 3.0  # seconds between looks at who is connected


class FairStrategy(Strategy):
    """Aggregates by `rule`: a name (`adafed list rules`) or what `adafed.rule(name, **options)` returns.

    The run begins once `min_available_nodes` are connected. With `fraction_train` below 1, nodes are asked in the first
    round which clients they hold, and cohorts are drawn from the clients' ids and `seed`: the same cohorts as the
    simulator's, whatever Flower calls the nodes.

    Bad replies are left out and named in the log: errors, a wrong name, shape or dtype, NaN, a sample count above
    `max_samples` or above the one the client registered with. If nobody is left, the round changes nothing.

    `checkpoint` names a folder; the server's state is saved there after every round, and `start` goes on from it.
    `evaluate_every` is 0 for one evaluation after the last round, -1 for none. `loss` says which of the clients' losses
    the rule is told: before, after or running.
    """

    def __init__(
        self,
        rule: str | Rule = "adafed",
        *,
        server_optimizer: str | ServerOptimizer = "sgd",
        server_lr: float = 1.0,
        server_schedule: str | Schedule = "constant",
        fraction_train: float = 1.0,
        min_available_nodes: int = 2,
        seed: int = 0,
        loss: str = "before",
        local_lr: float | Callable[[int], float] | None = None,
        max_samples: int | None = None,
        statistics: Collection[str] | None = None,
        evaluate_every: int = 0,
        checkpoint: str | Path | Keeper | None = None,
    ) -> None:
        if loss not in LOSSES:
            raise AdafedError(f"loss is {loss!r}; it must be one of {', '.join(LOSSES)}")
        if not 0 < server_lr < float("inf"):
            raise AdafedError(f"server_lr is {server_lr}; it must be a number above 0")
        if seed < 0:
            raise AdafedError(f"seed is {seed}; it must be at least 0")
        if not 0 < fraction_train <= 1:
            raise AdafedError(f"fraction_train is {fraction_train}; it must be above 0 and at most 1")
        self.server = Server(_rule(rule), _optimizer(server_optimizer), _schedule(server_schedule), server_lr)
        self.fraction_train = fraction_train
        self.min_available_nodes = min_available_nodes
        self.seed = seed
        self.loss = loss
        self.local_lr = local_lr
        self.statistics = statistics
        self.evaluate_every = evaluate_every
        self.keeper: Keeper | None = StateKeeper(checkpoint) if isinstance(checkpoint, str | Path) else checkpoint
        self.handshake = fraction_train < 1
        self.sampler: Sampler | None = None
        self.timeout = 3600.0
        self.roster = Roster(max_samples)
        self.arrays: Arrays | None = None
        self.state: ServerState | None = None
        self.record: RoundRecord | None = None  # of the last round
        self.evaluation: dict[int, dict[str, float]] = {}  # each client's own numbers, from the last evaluation
        self._asked: dict[int, list[int]] = {}  # node -> clients, of the round under way
        self._cohort: Cohort | None = None
        self._messages: list[Message] = []  # of the phase under way
        self._begun = False

    # The run

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None = None,
    ) -> Result:
        """As Flower's own, but it goes on after the last saved round and evaluates clients once, after the last."""
        self.timeout = timeout
        self.begin(initial_arrays)
        assert self.state is not None
        assert self.arrays is not None
        self.summary()
        result = Result()
        result.arrays = self.arrays.record(self.state.parameters)
        if self.state.round:
            log.info("going on after round %d", self.state.round)
        elif evaluate_fn is not None:
            _note(result.evaluate_metrics_serverapp, 0, evaluate_fn(0, initial_arrays))
        for t in range(self.state.round + 1, num_rounds + 1):
            log.info("[ROUND %d/%d]", t, num_rounds)
            messages = self.configure_train(t, result.arrays, train_config or ConfigRecord(), grid)
            arrays, metrics = self.aggregate_train(t, grid.send_and_receive(messages, timeout=timeout))
            result.arrays = result.arrays if arrays is None else arrays
            _note(result.train_metrics_clientapp, t, metrics)
            if t == num_rounds or (self.evaluate_every and t % self.evaluate_every == 0):
                messages = self.configure_evaluate(t, result.arrays, evaluate_config or ConfigRecord(), grid)
                replies = grid.send_and_receive(messages, timeout=timeout)
                _note(result.evaluate_metrics_clientapp, t, self.aggregate_evaluate(t, replies))
            if evaluate_fn is not None:
                _note(result.evaluate_metrics_serverapp, t, evaluate_fn(t, result.arrays))
            if self.keeper is not None:
                assert self.record is not None
                self.keeper.save(self.record, self.state)
        return result

    def begin(self, initial: ArrayRecord) -> None:
        """Take the first model, or the one that was saved."""
        self.arrays = Arrays.of(initial, self.statistics)
        first = ServerState(self.arrays.flat(initial), self.arrays.length)
        saved = self.keeper.restored() if self.keeper is not None else None
        if saved is not None and (len(saved.parameters), saved.length) != (len(first.parameters), first.length):
            raise AdafedError(
                f"the checkpoint holds a model of {len(saved.parameters)} numbers and the app has one of "
                f"{len(first.parameters)}; name another folder"
            )
        self.state = saved or first

    def summary(self) -> None:
        log.info("rule %s, server rate %g, %s", self.server.rule, self.server.rate, self.server.optimizer)

    # Training

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        if self.state is None:  # driven by somebody else's loop
            self.begin(arrays)
        nodes = self._nodes(grid)
        self._cohort = None
        if self.handshake:
            self.roster.meet(grid, nodes, self.timeout)
        if self.handshake and self.roster.samples:
            self._cohort = self._sampler().cohort(server_round)
            held = self.roster.holders
            self._asked = {}
            for client in self._cohort.answering:
                if client in held:
                    self._asked.setdefault(held[client], []).append(client)
        else:
            if self.handshake:
                log.warning("no node says which clients it holds; all %d nodes are asked to train", len(nodes))
            self._asked = {node: self.roster.held(node) for node in nodes}
        self._messages = [
            self._message(
                MessageType.TRAIN, node, arrays, config, self.train_config(server_round, clients), server_round
            )
            for node, clients in sorted(self._asked.items())
        ]
        return self._messages

    def train_config(self, round: int, clients: list[int]) -> dict[str, Any]:
        """More for the `config` of a node that is to train `clients`."""
        return {}

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        assert self.state is not None
        assert self.arrays is not None
        asked = None if self._cohort is None else frozenset(c for held in self._asked.values() for c in held)
        limits = Limits(self.roster.holders, self.roster.samples, self.roster.most, asked, self._sent())
        messages = list(replies)
        found = screened(messages, self.arrays, self.state.parameters, limits, self._needed())
        self._silent(found, {node_of(message, limits.sent) for message in messages})
        self.roster.learn(found.replies)
        outcome, skipped = self._aggregate(found.replies, server_round)
        members = participants(found, outcome, self.name_of)
        rates = self._local_lr(server_round) or 0.0, self.server.rate_of(server_round)
        self.record = recorded(server_round, *rates, members, outcome, skipped)
        for participant in members:
            if participant.dropped:
                log.warning("round %d: client %s left out: %s", server_round, participant.client, participant.dropped)
        for stranger in found.strangers:
            log.warning("round %d: left out: %s", server_round, stranger)
        if skipped is not None:
            log.warning("round %d changed nothing: %s", server_round, skipped)
        self.state = self.stepped(found.replies, outcome, server_round)
        if outcome is None:
            return None, None
        metrics = diagnostics(found.replies, outcome, len(found.refused) + len(found.strangers))
        return self.arrays.record(self.state.parameters), metrics

    def stepped(self, replies: list[Reply], outcome: Aggregate | None, round: int) -> ServerState:
        """theta_{t+1}; BatchNorm's statistics are averaged by sample count, as the simulator does."""
        assert self.state is not None
        statistics = None
        if outcome is not None and len(self.state.parameters) > self.state.length:
            kept = [k for k, rate in enumerate(outcome.diagnostics.rates) if not np.isnan(rate)]
            if kept:
                weights = np.array([replies[k].samples for k in kept], dtype=np.float64)
                own = np.stack([replies[k].statistics.numpy() for k in kept])
                statistics = torch.from_numpy((weights / weights.sum()) @ own).to(self.state.parameters.dtype)
        return self.server.step(self.state, outcome, statistics)

    def _aggregate(self, replies: list[Reply], t: int) -> tuple[Aggregate | None, str | None]:
        if not replies:
            return None, "no client answered with anything of use"
        assert self.state is not None

        def all_of(key: str) -> list[float | None] | None:
            values = [reply.number(key) for reply in replies]
            return None if None in values else values

        try:
            outcome = aggregate(
                self.server.rule,
                torch.stack([reply.update for reply in replies]),
                losses=all_of(LOSSES[self.loss]),
                sizes=[reply.samples for reply in replies],
                accuracies=all_of(ACCURACY),
                clients=[self.name_of(reply.client) for reply in replies],
                round=t,
                local_lr=self._local_lr(t),
                federation=None if self.sampler is None else len(self.sampler.sizes),
                state=self.state.rule_state,
            )
        except NoClientLeft as error:
            return None, str(error)
        return outcome, None

    # Evaluation

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Everybody's, not a sample's: fairness is about all clients."""
        self._messages = [
            self._message(
                MessageType.EVALUATE,
                node,
                arrays,
                config,
                self.evaluate_config(server_round, self.roster.held(node)),
                server_round,
            )
            for node in (self._nodes(grid) if self.evaluate_every >= 0 else ())
        ]
        return self._messages

    def evaluate_config(self, round: int, clients: list[int]) -> dict[str, Any]:
        """More for the `config` of a node that is to evaluate `clients`."""
        return {}

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        self.evaluation = {}
        sent = self._sent()
        for message in replies:
            node = node_of(message, sent)
            if message.has_error():
                held = ", ".join(self.name_of(client) for client in self.roster.held(node)) or f"of node {node}"
                log.warning("evaluation: client %s left out: %s", held, message.error.reason)
                continue
            for suffix in suffixes(message):
                client = client_of(message, suffix)
                metrics = message.content.metric_records.get(f"metrics{suffix}")
                if client is None or metrics is None or self.roster.holders.get(client, node) != node:
                    log.warning("evaluation: a reply of node %d left out: it is no client of that node", node)
                    continue
                self.evaluation[client] = numbers_of(metrics)
        self.evaluation = dict(sorted(self.evaluation.items()))
        evaluations = self.evaluations()
        if self.record is not None:
            self.record = replace(self.record, evaluations=evaluations)
        return fairness_metrics(evaluations[0]) if evaluations else None

    def evaluations(self) -> tuple[Evaluation, ...]:
        """The last evaluation's numbers, client by client."""
        return self.evaluated("test", "", personal=False)

    def evaluated(self, part: str, prefix: str, *, personal: bool) -> tuple[Evaluation, ...]:
        """What clients said of one part of their data, under keys that begin with `prefix`."""
        scores = []
        for client, numbers in self.evaluation.items():
            samples, accuracy = numbers.get(f"{prefix}{SAMPLES}"), numbers.get(f"{prefix}{ACCURACY}")
            loss = numbers.get(f"{prefix}{LOSS}")
            if samples is None:
                continue
            if not (0 <= samples < 2**53 and samples == int(samples)):
                log.warning("evaluation: client %s left out: sample count is %s", self.name_of(client), samples)
                continue
            if samples and not (accuracy is not None and 0 <= accuracy <= 1):
                log.warning("evaluation: client %s left out: accuracy is %s", self.name_of(client), accuracy)
                continue
            known = samples > 0
            scores.append((self.name_of(client), Scores(client, int(samples), loss if known else None,
                                                        accuracy if known else None)))  # fmt: skip
        return (Evaluation(part, personal, tuple(scores)),) if any(s.samples for _, s in scores) else ()

    # Small parts

    def name_of(self, client: int) -> str:
        return str(client)

    def _nodes(self, grid: Grid) -> list[int]:
        """Who is connected. The run begins with `min_available_nodes`; later, those that are left carry on."""
        enough = 1 if self._begun else self.min_available_nodes
        end = time.monotonic() + self.timeout
        while len(nodes := sorted(grid.get_node_ids())) < enough and (not self._begun or time.monotonic() < end):
            log.info("waiting for %d nodes, %d are connected", enough, len(nodes))
            time.sleep(POLL)
        self._begun = True
        self.roster.connected(nodes)
        return nodes

    def _sampler(self) -> Sampler:
        """Over the clients that have registered so far."""
        if self.sampler is not None:
            return self.sampler
        return _Ranked(CohortSection(fraction=self.fraction_train), self.roster.samples, self.seed)

    def _message(
        self, kind: str, node: int, arrays: ArrayRecord, config: ConfigRecord, more: dict[str, Any], round: int
    ) -> Message:
        own = ConfigRecord({**config, "server-round": round, **more})
        return Message(RecordDict({"arrays": arrays, "config": own}), node, kind, group_id=str(round))

    def _sent(self) -> dict[str, int]:
        """Sending gives a message its id."""
        return {message.metadata.message_id: message.metadata.dst_node_id for message in self._messages}

    def _needed(self) -> list[str]:
        keys = {"losses": LOSSES[self.loss], "accuracies": ACCURACY}
        return [key for need, key in keys.items() if need in self.server.rule.needs]

    def _local_lr(self, t: int) -> float | None:
        return self.local_lr(t) if callable(self.local_lr) else self.local_lr

    def _silent(self, found: Screened, answered: set[int]) -> None:
        """Name who was asked and is missing from the replies: a straggler past the timeout, or a lost node."""
        here = {reply.client for reply in found.replies} | found.refused.keys()
        for node, clients in self._asked.items():
            if node not in answered and not clients:
                found.strangers.append(f"node {node}: no reply within {self.timeout:g} s")
            for client in set(clients) - here:
                found.refused[client] = (
                    "its node's reply does not mention it"
                    if node in answered
                    else f"no reply within {self.timeout:g} s"
                )
        if self._cohort is not None:
            asked = {client for clients in self._asked.values() for client in clients}
            for client in self._cohort.answering:
                if client not in asked:
                    found.refused[client] = "no connected node holds it"
            found.refused.update(dict.fromkeys(self._cohort.lost, "did not answer"))


class _Ranked(Sampler):
    """Ids need not be 0, 1, 2, ...: cohorts are drawn from their ranks."""

    def __init__(self, section: CohortSection, known: dict[int, int], seed: int) -> None:
        self.clients = sorted(known)
        sizes = np.array([known[client] for client in self.clients])
        super().__init__(section, tuple(map(str, self.clients)), sizes, seed)

    def cohort(self, round: int) -> Cohort:
        ranks = super().cohort(round)
        named = self.clients
        return Cohort(
            tuple(named[rank] for rank in ranks.clients),
            frozenset(named[rank] for rank in ranks.lost),
            {named[rank]: share for rank, share in ranks.shares.items()},
        )


def _note(where: dict[int, MetricRecord], round: int, metrics: MetricRecord | None) -> None:
    if metrics is not None:
        where[round] = metrics


def _rule(given: str | Rule) -> Rule:
    return rule(given) if isinstance(given, str) else given


def _optimizer(given: str | ServerOptimizer) -> ServerOptimizer:
    return optimizer(given) if isinstance(given, str) else given


def _schedule(given: str | Schedule) -> Schedule:
    return schedule(given) if isinstance(given, str) else given
