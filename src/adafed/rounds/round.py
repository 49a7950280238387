"""The server's half of a round, used by every engine: replies in, the next state and the round's record out.

An engine says whom the server asks and what it tells them (`cohort`, `orders`), brings the replies, and hands them to
`conclude`: the server rule, BatchNorm's statistics, the step, the client rules' halves, and the record.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import torch

from adafed.algebra.rows import Updates
from adafed.client_rules.base import Ask, ClientRule, Orders, Plan, Setting, TellingReply, Tensors
from adafed.config.configuration import Config
from adafed.errors import AdafedError, NoClientLeft
from adafed.imported import ours
from adafed.rounds.cohort import Cohort, Sampler, heard
from adafed.rounds.plans import Ruled, broadcast, orders, ruled_by, summed, taken
from adafed.rounds.records import Participant, RoundRecord, improved
from adafed.rounds.remembering import remembering
from adafed.rounds.replies import ACCURACY, AFTER, LOSS, LOSSES, RUNNING, Reply
from adafed.rounds.safe import Trying, found_safe, in_words, notes
from adafed.rounds.statistics import averaged, unusable
from adafed.server.aggregate import Aggregate, RuleState, aggregate
from adafed.server.memory import NOBODY, Remember
from adafed.server.row_files import RowStore
from adafed.server.state import Server, ServerState
from adafed.server.steps import SafeStep
from adafed.server_rules import Rule
from adafed.server_rules.guards import Guard

DID_NOT_ANSWER = "did not answer"


class Concluded(NamedTuple):
    state: ServerState
    record: RoundRecord
    outcome: Aggregate | None


RuleAsk = Callable[[ClientRule, Plan, Sequence[int], Mapping[str, torch.Tensor], ServerState], list[TellingReply]]


def nobody_asked(*_: object) -> list[TellingReply]:
    """For engines whose clients have no rules."""
    return []


@dataclass(frozen=True)
class ServerHalf:
    """The parts of the server that do not change from round to round, and what they make of each."""

    server: Server
    told: str = "before"  # which of the clients' losses the rule is told
    local_lr: Callable[[int], float | None] = lambda _: None
    name_of: Callable[[int], str] = str
    federation: int | None = None  # how many clients there are in all
    client_rules: tuple[Ruled, ...] = ()
    guards: tuple[Guard, ...] = ()
    remember: Remember = field(default_factory=Remember)
    auto: bool = False  # whether it is the rule that decides on the memory
    by_loss: bool = False  # whether the losses that clients tell decide who is drawn next

    @classmethod
    def of(cls, config: Config, ids: Sequence[str], store: RowStore | None = None, length: int = 0) -> ServerHalf:
        """Of an experiment: the clients are called so, updates have that length, and remembered ones lie in `store`."""
        parts, section = config.parts, config.memory
        store = store or RowStore(section.storage, section.budget_mb * 2**20, sketch=section.sketch)
        ruled = ruled_by(parts.client_rules, Setting(len(ids), config.rounds, config.derived_seeds().sampling))
        return cls(
            Server(parts.rule, parts.optimizer, parts.schedule, config.server.rate, config.server.step),
            told=config.server.loss,
            local_lr=config.local.rate,
            name_of=ids.__getitem__,
            federation=len(ids),
            client_rules=ruled,
            guards=parts.guards,
            remember=remembering(config, len(ids), length, store),
            auto=section.rounds == "auto",
            by_loss=config.cohort.sampling in ("loss", "power-of-choice"),
        )

    @property
    def needs(self) -> frozenset[str]:
        """The facts that the rule and the guards need of every client."""
        return self.server.rule.needs.union(*(guard.needs for guard in self.guards))

    def needed_numbers(self) -> list[str]:
        """Of a reply's numbers, those without which it is of no use."""
        keys = {"losses": LOSSES[self.told], "accuracies": ACCURACY}
        found = [key for need, key in keys.items() if need in self.needs or (need == "losses" and self.by_loss)]
        return found if LOSS in found or self.server.kind != "safe" else [*found, LOSS]

    # Before a round

    def first_state(self, parameters: torch.Tensor, length: int) -> ServerState:
        known: Tensors = {}
        for one in self.client_rules:
            known |= one.rule.named(one.plan.fresh(length))
        return ServerState(parameters, length, known=known)

    def unfit(self, state: ServerState, first: ServerState) -> str | None:
        """Why a saved state cannot be a later one of the run that begins with `first`; None where it can."""
        for one in self.client_rules:
            own = one.rule.own(state.known)
            for name, value in one.rule.own(first.known).items() if ours(one.rule) else ():
                there = own.get(name)
                if there is None or (there.shape, there.dtype) != (value.shape, value.dtype):
                    return f"the checkpoint lacks {name!r} of client rule {one.rule.name}, or has it in another shape"
        planned = any(type(one.plan).server_rule is not Plan.server_rule for one in self.client_rules)
        return self.server.unfit(state, first, rule=None if planned else self.server.rule)

    def largest(self, usual: int) -> int:
        """The largest cohort there can be."""
        return max([usual, *(one.plan.largest(usual) for one in self.client_rules)])

    def cohort(self, sampler: Sampler, state: ServerState, round: int) -> Cohort:
        """Line 3 of Algorithm 1, unless a client rule has plans of its own."""
        for one in self.client_rules:
            draw = one.plan.draw(round, one.rule.own(state.known))
            if draw is not None:
                most = one.plan.largest(sampler.largest)
                if draw.all and len(draw.clients) > most:
                    raise AdafedError(
                        f"client rule {one.rule.name} draws {len(draw.clients)} clients in round {round}; it must be "
                        f"at most {most}, which Plan.largest tells"
                    )
                return sampler.these(round, sampler.joined(round, draw.clients)) if draw.all else sampler.among(
                    round, draw.clients, self._last_losses(state)
                )  # fmt: skip
        return sampler.cohort(round, self._last_losses(state))

    def _last_losses(self, state: ServerState) -> dict[int, float]:
        return {int(client): loss for client, loss in state.losses.items()}

    def orders(self, state: ServerState, round: int, clients: Sequence[int]) -> list[dict[str, Orders]]:
        """What the server tells each of these clients alone, by client rule."""
        return orders(self.client_rules, state.known, round, clients)

    def broadcast(self, state: ServerState) -> torch.Tensor:
        """The model and, behind it, the vectors that the clients' rules receive."""
        return broadcast(self.client_rules, state)

    def rule(self, round: int) -> Rule:
        found = self.server.rule
        for one in self.client_rules:
            found = one.plan.server_rule(round, found)
        return found

    def memory(self, round: int) -> Remember:
        """That of the round's rule: one that is not best with everyone has none unless it was asked for."""
        return self.remember if not self.auto or self.rule(round).everyone else replace(self.remember, rounds=0)

    # After it

    def conclude(
        self,
        state: ServerState,
        round: int,
        replies: Sequence[Reply],
        missing: Mapping[int, str],
        *,
        nobody: str = "no client answered",
        updates: Updates | None = None,
        ask: RuleAsk = nobody_asked,
        trying: Trying | None = None,
    ) -> Concluded:
        """Lines 11-16 of Algorithm 1. `replies` are in the order of the clients; `missing` says who else was asked, and
        why there is no reply. `updates` are the replies' updates, where they lie as one matrix. A safe step is found by
        `trying` it."""
        state = self._begun(state, round)
        dropped = unusable(replies, state.parameters[state.length :])
        outcome, skipped, why = (
            self._aggregated(state, round, replies, dropped, updates) if replies else (None, nobody, {})
        )
        known, term = summed(self.client_rules, state, replies, updates, outcome)
        statistics = averaged([replies[k] for k in taken(outcome)], state.parameters[state.length :], self.guards)
        safe = None
        if self.server.kind == "safe" and outcome is not None:
            assert trying is not None
            safe = self._safe(state, trying, replies, outcome, statistics, term)
            skipped = None if safe.length else in_words(safe, self.name_of)
        next_state = self.server.step(state, outcome, statistics, term, safe and safe.length)
        next_state = replace(next_state, known=known, step=safe.first if safe else state.step)
        if any(one.rule.keeps for one in self.client_rules):
            next_state = replace(next_state, kept=state.kept | self._kept(round, replies, outcome))
        if self.by_loss:
            asked = [*missing, *(reply.client for reply in replies)]
            next_state = replace(next_state, losses=heard(state.losses | self._losses(replies, outcome), asked))
        next_state = self._learned(next_state, round, replies, ask)
        record = self._record(next_state, round, replies, missing, outcome, skipped, why)
        return Concluded(
            next_state, record if safe is None else self._told_safe(record, safe, replies, outcome), outcome
        )

    def _begun(self, state: ServerState, round: int) -> ServerState:
        """What another rule left is no state of this round's; nor of the next one's, where this round is skipped."""
        rule, before = self.rule(round), state.rule_state
        if before is None or round == 1 or self.rule(round - 1) == rule:
            return state
        known = before.known if self.memory(round).horizon else NOBODY
        return replace(state, rule_state=RuleState(rule.initial_state(), known, before.guards))

    def _safe(
        self,
        state: ServerState,
        trying: Trying,
        replies: Sequence[Reply],
        outcome: Aggregate,
        statistics: torch.Tensor | None,
        term: torch.Tensor | None,
    ) -> SafeStep:
        """As long as leaves none of those worse off whose updates were taken."""

        def stepped(length: float) -> ServerState:
            return self.server.step(state, outcome, statistics, term, length)

        rate, members = self.server.rate_of(state.round + 1), [replies[k] for k in taken(outcome)]
        return found_safe(trying, members, stepped, rate if state.step is None else state.step, rate)

    def _told_safe(
        self, record: RoundRecord, safe: SafeStep, replies: Sequence[Reply], outcome: Aggregate | None
    ) -> RoundRecord:
        """With the step that was taken, and the losses after it, which are known already: rho_t is too."""
        members = [replies[k].client for k in taken(outcome)]
        told = replace(record, server_rate=safe.length, notes=record.notes | notes(safe, members, self.name_of))
        if safe.length:
            return improved(told, {self.name_of(client): loss for client, loss in safe.losses.items()})
        return improved(told, {one.client: one.before for one in told.participants if one.before is not None})

    def _aggregated(
        self,
        state: ServerState,
        round: int,
        replies: Sequence[Reply],
        dropped: Mapping[int, str],
        updates: Updates | None,
    ) -> tuple[Aggregate | None, str | None, dict[str, str]]:
        """The outcome, or why there is none and why each client was dropped."""
        named = {self.name_of(replies[k].client): why for k, why in dropped.items()}
        good = [reply for k, reply in enumerate(replies) if k not in dropped]
        if not good:
            return None, str(NoClientLeft.of(named)), named

        def all_of(key: str) -> list[float | None] | None:
            values = [reply.numbers.get(key) for reply in good]
            return None if None in values else values

        try:
            outcome = aggregate(
                self.rule(round),
                updates if updates is not None and not dropped else [reply.update for reply in good],
                losses=all_of(LOSSES[self.told]),
                sizes=[reply.samples for reply in good],
                accuracies=all_of(ACCURACY),
                clients=[self.name_of(reply.client) for reply in good],
                round=round,
                local_lr=self.local_lr(round),
                federation=self.federation,
                state=state.rule_state,
                guards=self.guards,
                memory=self.memory(round),
            )
        except NoClientLeft as error:
            return None, str(error), named | dict(error.dropped)
        outcome = _among_all(outcome, named, dropped)
        return outcome, None, outcome.diagnostics.dropped

    def _kept(self, round: int, replies: Sequence[Reply], outcome: Aggregate | None) -> dict[str, int]:
        """Who has written what it keeps. Where the server adds up what clients sent, one that was left out goes on from
        what it kept before, so that both sides speak of the same."""
        adding = any(one.rule.sums for one in self.client_rules)
        return {str(replies[k].client): round for k in (taken(outcome) if adding else range(len(replies)))}

    def _losses(self, replies: Sequence[Reply], outcome: Aggregate | None) -> dict[str, float]:
        """What those told who were not dropped."""
        told = {str(replies[k].client): replies[k].number(LOSSES[self.told]) for k in taken(outcome)}
        return {client: loss for client, loss in told.items() if loss is not None}

    def _learned(self, state: ServerState, round: int, replies: Sequence[Reply], ask: RuleAsk) -> ServerState:
        for one in self.client_rules:
            rule, plan = one.rule, one.plan
            if type(plan).learned is Plan.learned:
                continue
            telling = [TellingReply(reply.client, reply.told.get(rule.name, {})) for reply in replies]
            before = rule.own(state.known)
            own = plan.learned(round, before, telling, _asking(ask, rule, plan, state))
            others = {name: value for name, value in state.known.items() if name not in rule.named(before)}
            state = replace(state, known=others | rule.named(own))
        return state

    def _record(
        self,
        state: ServerState,
        round: int,
        replies: Sequence[Reply],
        missing: Mapping[int, str],
        outcome: Aggregate | None,
        skipped: str | None,
        dropped: Mapping[str, str],
    ) -> RoundRecord:
        members = {client: Participant(self.name_of(client), dropped=why) for client, why in missing.items()}
        coefficients = outcome.coefficients.tolist() if outcome else []
        rates = outcome.diagnostics.rates.tolist() if outcome else []
        for k, reply in enumerate(replies):
            name, number = self.name_of(reply.client), reply.numbers.get
            why = dropped.get(name)
            members[reply.client] = Participant(
                client=name,
                samples=reply.samples,
                steps=reply.steps,
                before=number(LOSS),
                after=number(AFTER),
                running=number(RUNNING),
                accuracy=number(ACCURACY),
                coefficient=coefficients[k] if outcome else None,
                descent=rates[k] if outcome and not why else None,
                dropped=why,
            )
        found = outcome.diagnostics if outcome else None
        notes = dict(found.notes) if found else {}
        if found and found.bounded:
            notes["bounded"] = found.bounded
        if found and found.warned:
            notes["warned"] = found.warned
        for one in self.client_rules:
            notes |= one.plan.notes(round, one.rule.own(state.known))
        return RoundRecord(
            round=round,
            local_lr=self.local_lr(round) or 0.0,
            server_rate=self.server.rate_of(round),
            participants=tuple(members[client] for client in sorted(members)),
            norm=found.norm if found else None,
            mean_norm=found.mean_norm if found else None,
            condition=found.condition if found else None,
            negative=found.negative if found else None,
            skipped=skipped,
            notes=notes,
        )


def _among_all(outcome: Aggregate, named: Mapping[str, str], dropped: Mapping[int, str]) -> Aggregate:
    """The outcome of the others with those who were dropped before, at their places among all."""
    if not dropped:
        return outcome
    diagnostics, count = outcome.diagnostics, len(outcome.coefficients) + len(dropped)
    kept = [k for k in range(count) if k not in dropped]
    coefficients, rates = np.zeros(count), np.full(count, np.nan)
    coefficients[kept], rates[kept] = outcome.coefficients, diagnostics.rates
    multipliers = diagnostics.multipliers
    if multipliers is not None:
        multipliers = np.full(count, np.nan)
        multipliers[kept] = diagnostics.multipliers
    told = replace(diagnostics, rates=rates, dropped=diagnostics.dropped | dict(named), multipliers=multipliers)
    return replace(outcome, coefficients=coefficients, diagnostics=told)


def _asking(ask: RuleAsk, rule: ClientRule, plan: Plan, state: ServerState) -> Ask:
    return lambda clients, known: ask(rule, plan, clients, known, state)
