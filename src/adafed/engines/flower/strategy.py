"""FairStrategy: any registered rule as a strategy of Flower's Message API.

It is a subclass of `flwr.serverapp.strategy.Strategy`, so an existing app changes the line that makes its strategy. Its
clients send two more numbers in `metrics`: `loss`, that of the received model on their training samples, and
`client-id`, their own id. `adafed.flower.fair_client` does both.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from inspect import signature
from logging import getLogger
from pathlib import Path
from typing import Literal, Never, get_args

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from adafed.config.sections import CohortSection
from adafed.engines.flower.arrays import Arrays
from adafed.engines.flower.checkpoint import Keeper, StateKeeper
from adafed.engines.flower.conversation import Conversation
from adafed.engines.flower.engine import sensible
from adafed.engines.flower.given import above_zero, nothing_else, optimizer_of, rule_of, schedule_of, whole
from adafed.engines.flower.replies import SAMPLES, lacking
from adafed.engines.flower.reporting import diagnostics, fairness_metrics
from adafed.engines.flower.trying import AT_ONCE, telling
from adafed.errors import AdafedError
from adafed.registry import one_of
from adafed.rounds.cohort import NO_LOSSES, Cohort, Sampler
from adafed.rounds.records import Evaluation, RoundRecord, Scores
from adafed.rounds.replies import ACCURACY, LOSS, LOSSES
from adafed.rounds.round import ServerHalf
from adafed.rounds.safe import Trying
from adafed.server.memory import NOBODY, Remember
from adafed.server.optimizers import ServerOptimizer
from adafed.server.schedules import Schedule
from adafed.server.state import Server, ServerState
from adafed.server.steps import StepKind
from adafed.server_rules import Rule
from adafed.server_rules.guards import UNASKED, Guard, resolved

log = getLogger("flwr")


class FairStrategy(Strategy):
    """A Flower strategy that aggregates by any rule of this package.

    The run begins once `min_available_nodes` are connected. With `fraction_train` below 1, nodes are asked in the first
    round which clients they hold, and cohorts are drawn from the clients' ids and `seed`: the same cohorts as the
    simulator's, whatever Flower calls the nodes.

    Bad replies are left out and named in the log: errors, a wrong name, shape or dtype, NaN, a sample count above
    `max_samples` or above the one the client registered with. If nobody is left, the round changes nothing.

    Args:
        rule: A name (`adafed list rules`) or what `adafed.rule(name, **options)` returns.
        server_optimizer: What is done with the rule's direction; a name, or what `adafed.optimizer` returns.
        server_lr: The server's rate.
        server_schedule: How the rate goes over the rounds; a name, or what `adafed.schedule` returns.
        fraction_train: Of the clients in each round.
        min_available_nodes: With how many the run begins; later rounds go on with those that are left.
        seed: Of the cohorts.
        loss: Which of the clients' losses the rule is told: before, after, running or validation.
        local_lr: The clients' learning rate, or a function of the round, which q-FFL needs.
        max_samples: The most samples a client may claim.
        statistics: Names of arrays that are averaged beside the rule; None: BatchNorm's running mean and variance.
        evaluate_every: So many rounds; 0 is one evaluation after the last round, -1 none.
        memory: The number of rounds, or "all", for which the rule is shown the last updates of clients that were not
            asked; "auto": under AdaFed all, as long as that stays true, and nobody under other rules. A `Remember` says
            more.
        checkpoint: A folder; the server's state is saved there after every round, and `start` goes on from it. One
            server has it at a time.
        guards: What bounds clients that lie (`adafed list guards`): "default", or a list; () for none. Without a word
            there is a wide bound against accidents alone.
        server_step: "rate", or "safe": a step is as long as leaves no client of the round worse off, and `server_lr` is
            the first one tried; one more phase a round.
        **other: Nothing: what other strategies take and this one does not is refused, and told what to use instead.

    Raises:
        AdafedError: For an unknown name or argument, or a value out of its range.
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
        memory: int | Literal["all", "auto"] | Remember = 0,
        checkpoint: str | Path | Keeper | None = None,
        guards: Sequence[Guard | str] | str = UNASKED,
        server_step: StepKind = "rate",
        **other: Never,
    ) -> None:
        nothing_else(other, [*signature(FairStrategy).parameters][:-1])
        one_of("loss", loss, tuple(LOSSES))
        one_of("server_step", server_step, get_args(StepKind))
        above_zero("server_lr", server_lr)
        above_zero("fraction_train", fraction_train, most=1)
        whole("seed", seed, 0)
        whole("min_available_nodes", min_available_nodes, 1)
        whole("evaluate_every", evaluate_every, -1)
        if max_samples is not None:
            whole("max_samples", max_samples, 1)
        self.server = Server(
            rule_of(rule), optimizer_of(server_optimizer), schedule_of(server_schedule), server_lr, server_step
        )
        if local_lr is None and "local_lr" in self.server.rule.needs:
            raise AdafedError(f"local_lr is None and rule {self.server.rule.name} needs it; give the clients' rate")
        if local_lr is not None and not callable(local_lr):
            above_zero("local_lr", local_lr)
        self.fraction_train = fraction_train
        self.seed = seed
        self.loss = loss
        self.local_lr = local_lr
        self.statistics = statistics
        self.guards = resolved(guards)
        self.evaluate_every = evaluate_every
        self.keeper: Keeper | None = StateKeeper(checkpoint) if isinstance(checkpoint, str | Path) else checkpoint
        self.handshake = fraction_train < 1
        self.remember = Remember.asked_for(memory, self.server.rule, NOBODY)
        if self.keeper is not None and not isinstance(memory, Remember):
            self.remember = replace(self.remember, store=self.keeper.rows)
        self.conversation = Conversation(min_available_nodes, max_samples)
        self.arrays: Arrays | None = None
        self.state: ServerState | None = None
        self.record: RoundRecord | None = None  # of the last round
        self.evaluation: dict[int, dict[str, float]] = {}  # each client's own numbers, from the last evaluation
        self._cohort: Cohort | None = None
        self._grid: Grid | None = None

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
        try:
            self.conversation.timeout = timeout
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
        finally:
            if isinstance(self.keeper, StateKeeper):
                self.keeper.release()  # here, for whoever holds on to the strategy or to what it raised

    def begin(self, initial: ArrayRecord) -> None:
        """Take the first model, or the one that was saved."""
        self.arrays = Arrays.of(initial, self.statistics)
        first = ServerState(self.arrays.flat(initial), self.arrays.length)
        saved = None
        if self.keeper is not None:
            saved = self.keeper.restored(lambda state: self._half().unfit(state, first))
        self.state = saved or first

    def summary(self) -> None:
        log.info("rule %s, server rate %g, %s", self.server.rule, self.server.rate, self.server.optimizer)

    # Training

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        if self.state is None:  # driven by somebody else's loop
            self.begin(arrays)
            if self.state is not None and self.arrays is not None and self.state.round:
                arrays = self.arrays.record(self.state.parameters)  # saved rounds go on from where they were
        if callable(self.local_lr):
            above_zero(f"local_lr({server_round})", self.local_lr(server_round))
        talk, self._grid = self.conversation, grid
        nodes = talk.nodes(grid)
        self._cohort = None
        if self.handshake:
            talk.roster.meet(grid, nodes, talk.timeout)
        if self.handshake and talk.roster.samples:
            self._cohort = self._sampler().cohort(server_round)
            talk.asked = talk.held(self._cohort.answering)
        else:
            if self.handshake:
                log.warning("no node says which clients it holds; all %d nodes are asked to train", len(nodes))
            talk.asked = {node: talk.roster.held(node) for node in nodes}
        configs = {node: dict(config) for node in sorted(talk.asked)}
        return list(talk.messages(MessageType.TRAIN, {"arrays": arrays}, configs, server_round))

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        assert self.state is not None
        assert self.arrays is not None
        found = self.conversation.heard(
            replies, self.arrays, self.state.parameters, self._half().needed_numbers(), self._cohort
        )
        self.state, self.record, outcome = self._half().conclude(
            self.state, server_round, found.replies, found.refused, nobody="no client answered with anything of use",
            trying=self._trying(server_round),
        )  # fmt: skip
        for participant in self.record.participants:
            if participant.dropped:
                log.warning("round %d: client %s left out: %s", server_round, participant.client, participant.dropped)
        for stranger in found.strangers:
            log.warning("round %d: left out: %s", server_round, stranger)
        if self.record.skipped is not None:
            log.warning("round %d changed nothing: %s", server_round, self.record.skipped)
        if outcome is None:
            return None, None
        metrics = diagnostics(found.replies, outcome, len(found.refused) + len(found.strangers))
        return self.arrays.record(self.state.parameters), metrics

    def _half(self) -> ServerHalf:
        """The server's half of a round, as the simulator has it."""
        registered = self.conversation.roster.samples if self.handshake else {}
        return ServerHalf(
            self.server, told=self.loss, local_lr=self._local_lr, guards=self.guards, remember=self.remember,
            federation=len(registered) or None,
        )  # fmt: skip

    def _trying(self, server_round: int) -> Trying | None:
        """For a safe step: one more phase, on the grid of the round."""
        if self._grid is None or self.arrays is None:
            return None
        return Trying(telling(self._grid, self.conversation, self.arrays, server_round), AT_ONCE)

    # Evaluation

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Everybody's, not a sample's: fairness is about all clients."""
        nodes = self.conversation.nodes(grid) if self.evaluate_every >= 0 else []
        configs = {node: dict(config) for node in nodes}
        return list(self.conversation.messages(MessageType.EVALUATE, {"arrays": arrays}, configs, server_round))

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        self.evaluation = dict(sorted(self.conversation.measured(replies, known_alone=False).items()))
        evaluation = self._evaluated()
        if self.record is not None:
            self.record = replace(self.record, evaluations=() if evaluation is None else (evaluation,))
        return None if evaluation is None else fairness_metrics(evaluation)

    def _evaluated(self) -> Evaluation | None:
        """The last evaluation's numbers, client by client."""
        found: list[Scores | None] = []
        for client, numbers in self.evaluation.items():
            lacks = [key for key in (SAMPLES, ACCURACY) if key not in numbers]
            if lacks and numbers.get(SAMPLES) != 0:  # without samples there is nothing to measure
                log.warning("evaluation: client %d left out: %s", client, lacking("evaluate", lacks[0], numbers))
                continue
            found.append(sensible(client, str(client), *(numbers.get(key) for key in (SAMPLES, LOSS, ACCURACY))))
        scores = tuple((str(score.client), score) for score in found if score is not None)
        return Evaluation("test", False, scores) if any(score.samples for _, score in scores) else None

    # Small parts

    def _sampler(self) -> Sampler:
        """Over the clients that have registered so far."""
        samples = self.conversation.roster.samples
        return _Ranked(CohortSection(fraction=self.fraction_train), samples, self.seed)

    def _local_lr(self, t: int) -> float | None:
        return self.local_lr(t) if callable(self.local_lr) else self.local_lr


class _Ranked(Sampler):
    """Ids need not be 0, 1, 2, ...: cohorts are drawn from their ranks."""

    def __init__(self, section: CohortSection, known: dict[int, int], seed: int) -> None:
        self.clients = sorted(known)
        sizes = np.array([known[client] for client in self.clients])
        super().__init__(section, tuple(map(str, self.clients)), sizes, seed)

    def cohort(self, round: int, losses: Mapping[int, float] = NO_LOSSES) -> Cohort:
        named = self.clients
        ranks = super().cohort(round, {named.index(client): loss for client, loss in losses.items()})
        return Cohort(
            tuple(named[rank] for rank in ranks.clients),
            frozenset(named[rank] for rank in ranks.lost),
            {named[rank]: share for rank, share in ranks.shares.items()},
        )


def _note(where: dict[int, MetricRecord], round: int, metrics: MetricRecord | None) -> None:
    if metrics is not None:
        where[round] = metrics
