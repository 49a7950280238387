"""Algorithm 1, on any engine: `Loop.rounds()` yields a record for each round.

The loop is the server's: whom to ask, what to make of the replies, what to measure, when to save. An engine trains and
measures where its clients are, and nothing else.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Literal, NamedTuple, Protocol

import torch

from adafed.algebra.blocks import walking_with
from adafed.algebra.rows import Updates
from adafed.client_rules.base import ClientRule, Orders, Plan, TellingReply, Told
from adafed.config.configuration import Config
from adafed.rounds.cohort import Cohort, Sampler
from adafed.rounds.records import Evaluation, RoundRecord, Scores, improved
from adafed.rounds.replies import Reply
from adafed.rounds.round import DID_NOT_ANSWER, ServerHalf
from adafed.rounds.safe import Trying
from adafed.server.state import ServerState

log = logging.getLogger(__name__)

Part = Literal["train", "validation", "test"]


class Task(NamedTuple):
    """What one client is asked to do in a round; `orders` are by client rule."""

    client: int
    share: float  # of its local steps: a straggler does less
    orders: Mapping[str, Orders]


@dataclass(frozen=True)
class Asked:
    """A round's training: the tasks, and which losses are wanted beside the running one."""

    round: int
    tasks: tuple[Task, ...]
    before: bool
    after: bool


@dataclass(frozen=True)
class Wanted:
    """A model on one part of some clients' data: the global one, or everyone's own. Training samples are measured as
    the last training had them. After the last round clients may make their own model anew (`last`), under `orders`."""

    clients: tuple[int, ...]
    part: Part
    personal: bool = False
    as_trained: bool = False
    last: bool = False
    orders: tuple[Mapping[str, Orders], ...] = ()


@dataclass(frozen=True)
class Collected:
    """The replies of a round in the order of the clients, and why others are missing."""

    replies: Sequence[Reply]
    missing: Mapping[int, str] = field(default_factory=dict)
    updates: Updates | None = None  # the replies' updates, where they lie as one matrix


class Engine(Protocol):
    """Where clients train. Training is begun, and its replies are asked for when they are needed: meanwhile the server
    may do anything but measure and ask. `broadcast` is the model, followed by what clients receive beside it. `tried`
    measures several models in one phase."""

    processes: int  # how many cores are free while nobody trains
    at_once: int  # models that `tried` is best given at a time

    def begin(self, asked: Asked, state: ServerState, broadcast: torch.Tensor) -> None: ...
    def replies(self) -> Collected: ...
    def measure(self, wanted: Sequence[Wanted], state: ServerState) -> list[list[Scores]]: ...
    def tried(self, wanted: Wanted, states: Sequence[ServerState]) -> list[list[Scores]]: ...
    def ask(
        self, rule: str, clients: Sequence[int], orders: Sequence[Mapping[str, Orders]], state: ServerState
    ) -> list[tuple[int, Told]]: ...


class Keeper(Protocol):
    """Where rounds are saved."""

    def save(self, record: RoundRecord, state: ServerState) -> None: ...
    def evaluated(self, round: int) -> Sequence[tuple[str, bool]]: ...
    def add_evaluations(self, round: int, evaluations: Sequence[Evaluation]) -> None: ...


class Loop:
    """A run in progress: the server's half, its state, and the engine.

    `evaluate_every`, where given, has the last word on when clients are measured: every so many rounds and after the
    last, 0 for after the last alone, -1 for never.
    """

    def __init__(
        self,
        config: Config,
        half: ServerHalf,
        sampler: Sampler,
        state: ServerState,
        engine: Engine,
        keeper: Keeper,
        evaluate_every: int | None = None,
    ) -> None:
        self.config = config
        self.half = half
        self.sampler = sampler
        self.state = state
        self.engine = engine
        self.keeper = keeper
        asked = config.evaluation
        self.every = asked.every if evaluate_every is None else evaluate_every
        self.improvement_every = asked.improvement_every or -1 if evaluate_every is None else evaluate_every

    def rounds(self) -> Iterator[RoundRecord]:
        """Lines 2-16. Clients begin a round while the server still saves the one before."""
        cohort = self._begin(self.state.round + 1)
        for t in range(self.state.round + 1, self.config.rounds + 1):
            clock = _Clock()
            collected = self.engine.replies()  # line 10
            clock.lap("train")
            self.state, record = self._conclude(cohort, collected, t)  # lines 11-16
            clock.lap("server")
            record = self._measured(record, collected, t)
            clock.lap("measure")
            cohort = self._begin(t + 1)
            clock.lap("train")
            self.keeper.save(record, self.state)
            clock.lap("save")
            yield replace(record, seconds=clock.laps)

    def _begin(self, t: int) -> Cohort:
        """Lines 3-9: the clients of the round have the model and train. After the last round, nobody."""
        if t > self.config.rounds:
            return Cohort((), frozenset(), {})
        cohort, told = self.half.cohort(self.sampler, self.state, t), self.half.told
        safe = self.half.server.kind == "safe"
        before = told == "before" or "accuracies" in self.half.needs or safe or self._due(self.improvement_every, t)
        clients = cohort.answering
        both = zip(clients, self.half.orders(self.state, t, clients), strict=True)
        tasks = tuple(Task(client, cohort.shares[client], orders) for client, orders in both)
        self.engine.begin(Asked(t, tasks, before, told == "after"), self.state, self.half.broadcast(self.state))
        return cohort

    def _conclude(self, cohort: Cohort, collected: Collected, t: int) -> tuple[ServerState, RoundRecord]:
        nobody = "no client answered" if cohort.clients else "no client has joined yet"
        missing = dict.fromkeys(cohort.lost, DID_NOT_ANSWER) | dict(collected.missing)
        with walking_with(self.engine.processes):
            found = self.half.conclude(
                self.state, t, collected.replies, missing, nobody=nobody, updates=collected.updates, ask=self._asked,
                trying=Trying(self._tried, self.engine.at_once),
            )  # fmt: skip
        return found.state, found.record

    def _tried(self, clients: Sequence[int], states: Sequence[ServerState]) -> list[dict[int, float]]:
        """These clients' training losses with each of these models."""
        found = self.engine.tried(Wanted(tuple(clients), "train", as_trained=True), states)
        return [{one.client: one.loss for one in scores if one.loss is not None} for scores in found]

    def _asked(
        self,
        rule: ClientRule,
        plan: Plan,
        clients: Sequence[int],
        known: Mapping[str, torch.Tensor],
        state: ServerState,
    ) -> list[TellingReply]:
        """Another phase of the round, with the new model and under orders made from what is known by now."""
        orders = [{rule.name: plan.orders(state.round, client, known)} for client in clients]
        return [TellingReply(*one) for one in self.engine.ask(rule.name, clients, orders, state)] if clients else []

    # Measuring

    def _due(self, every: int, t: int) -> bool:
        return every >= 0 and (t == self.config.rounds or (every > 0 and t % every == 0))

    def _measured(self, record: RoundRecord, collected: Collected, t: int) -> RoundRecord:
        """The record with rho_t and the evaluations, where they are due: one phase for both."""
        stepped = [Wanted(tuple(reply.client for reply in collected.replies), "train", as_trained=True)]
        due = self._due(self.improvement_every, t) and record.rho is None  # a safe step has looked already
        stepped = stepped if collected.replies and due else []
        wanted = self._evaluations(t) if self._due(self.every, t) else []
        if not stepped and not wanted:
            return record
        found = self.engine.measure([*stepped, *wanted], self.state)
        if stepped:
            losses = {self.half.name_of(one.client): one.loss for one in found.pop(0) if one.loss is not None}
            record = improved(record, losses)
        if missing := self._not_measured(wanted, found):
            log.warning("round %d: evaluated without %s", t, ", ".join(missing))
            record = replace(record, notes=record.notes | {"not_evaluated": dict.fromkeys(missing, DID_NOT_ANSWER)})
        return replace(record, evaluations=tuple(self._named(wanted, found)))

    def _named(self, wanted: Sequence[Wanted], found: Sequence[Sequence[Scores]]) -> list[Evaluation]:
        return [
            Evaluation(one.part, one.personal, tuple((self.half.name_of(score.client), score) for score in scores))
            for one, scores in zip(wanted, found, strict=True)
            if any(score.samples for score in scores)
        ]

    def measure_again(self) -> None:
        """What a run that is taken up lacks of its newest round: it was not the last and now is, or was and is not."""
        t = self.state.round
        if t == 0 or not self._due(self.every, t):
            return
        there = self.keeper.evaluated(t)
        wanted = [one for one in self._evaluations(t) if (one.part, one.personal) not in there]
        if not wanted:
            return
        found = self.engine.measure(wanted, self.state)
        if missing := self._not_measured(wanted, found):
            log.warning("round %d: evaluated without %s", t, ", ".join(missing))
        self.keeper.add_evaluations(t, self._named(wanted, found))

    def _not_measured(self, wanted: Sequence[Wanted], found: Sequence[Sequence[Scores]]) -> list[str]:
        """Who is not in an evaluation that should be of everybody; its numbers are then of other clients."""
        gone = {
            client
            for one, scores in zip(wanted, found, strict=True)
            for client in set(one.clients) - {score.client for score in scores}
        }
        return [self.half.name_of(client) for client in sorted(gone)]

    def _evaluations(self, t: int) -> list[Wanted]:
        """Everybody's, not a sample's: fairness is about all clients."""
        everyone = tuple(range(len(self.sampler.sizes)))
        parts: tuple[Part, ...] = ("test", "validation") if self.config.split.validation > 0 else ("test",)
        wanted = [Wanted(everyone, part) for part in parts]
        if self.config.personalised:
            last = t == self.config.rounds
            orders = tuple(self.half.orders(self.state, t, everyone)) if last else ()
            wanted += [Wanted(everyone, part, personal=True, last=last, orders=orders) for part in parts]
        return wanted


class _Clock:
    """Seconds of each stage of a round."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._last = perf_counter()

    def lap(self, name: str) -> None:
        now = perf_counter()
        self.laps[name] = self.laps.get(name, 0.0) + now - self._last
        self._last = now
