"""The server's half of a round, used by every engine: replies in, the next state and the round's record out.

An engine says whom the server asks and what it tells them (`cohort`, `orders`), brings the replies, and hands them to
`conclude`: the server rule, BatchNorm's statistics, the step, the client rules' halves, and the record.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch

from adafed.algebra.gram import screen
from adafed.algebra.rows import Rows, Updates
from adafed.algebra.weighted_sum import weighted_sum
from adafed.client_rules.base import Ask, ClientRule, Orders, Plan, Setting, TellingReply, Tensors
from adafed.config.sections import Config
from adafed.errors import AdafedError, NoClientLeft
from adafed.metrics import improvement
from adafed.rounds.cohort import Cohort, Sampler
from adafed.rounds.records import Participant, RoundRecord
from adafed.rounds.replies import ACCURACY, AFTER, LOSS, LOSSES, RUNNING, Reply
from adafed.server.aggregate import Aggregate, aggregate
from adafed.server.state import Server, ServerState
from adafed.server_rules import Rule
from adafed.server_rules.guards import Guard

BAD_STATISTICS = "BatchNorm statistics hold NaN or infinity"
DID_NOT_ANSWER = "did not answer"


@dataclass(frozen=True)
class Ruled:
    """A client rule with its half of the server."""

    rule: ClientRule
    plan: Plan


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

    @classmethod
    def of(cls, config: Config, ids: Sequence[str]) -> ServerHalf:
        """Of an experiment, with the clients called so."""
        parts = config.parts
        setting = Setting(len(ids), config.rounds, config.derived_seeds().sampling)
        ruled = tuple(Ruled(rule, rule.plan(setting)) for rule in parts.client_rules)
        for rule in parts.client_rules:
            if strange := set(rule.sums) - {"update", *rule.sends}:
                raise AdafedError(
                    f"client rule {rule.name} sums {min(strange)!r}; it must be 'update' or among its sends"
                )
        drawing = [one.rule.name for one in ruled if type(one.plan).draw is not Plan.draw]
        if len(drawing) > 1:
            raise AdafedError(f"{' and '.join(drawing)} each plan who takes part in a round; leave all but one out")
        return cls(
            Server(parts.rule, parts.optimizer, parts.schedule, config.server.rate),
            told=config.server.loss,
            local_lr=config.local.rate,
            name_of=ids.__getitem__,
            federation=len(ids),
            client_rules=ruled,
            guards=parts.guards,
        )

    @property
    def needs(self) -> frozenset[str]:
        """The facts that the rule and the guards need of every client."""
        return self.server.rule.needs.union(*(guard.needs for guard in self.guards))

    def needed_numbers(self) -> list[str]:
        """Of a reply's numbers, those without which it is of no use."""
        keys = {"losses": LOSSES[self.told], "accuracies": ACCURACY}
        return [key for need, key in keys.items() if need in self.needs]

    # Before a round

    def first_state(self, parameters: torch.Tensor, length: int) -> ServerState:
        known: Tensors = {}
        for one in self.client_rules:
            known |= one.rule.named(one.plan.fresh(length))
        return ServerState(parameters, length, known=known)

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
                    round, draw.clients
                )  # fmt: skip
        return sampler.cohort(round)

    def orders(self, state: ServerState, round: int, clients: Sequence[int]) -> list[dict[str, Orders]]:
        """What the server tells each of these clients alone, by client rule."""
        found: list[dict[str, Orders]] = [{} for _ in clients]
        for one in self.client_rules:
            if type(one.plan).orders is Plan.orders:
                continue
            known = one.rule.own(state.known)
            for own, client in zip(found, clients, strict=True):
                orders = one.plan.orders(round, client, known)
                own |= {one.rule.name: orders} if orders else {}
        return found

    def broadcast(self, state: ServerState) -> torch.Tensor:
        """The model and, behind it, the vectors that the clients' rules receive."""
        found = [state.parameters]
        for one in self.client_rules:
            vectors = one.plan.broadcast(one.rule.own(state.known)) if one.rule.receives else {}
            for name in one.rule.receives:
                if name not in vectors or vectors[name].shape != (state.length,):
                    raise AdafedError(
                        f"client rule {one.rule.name} receives {name!r}, which Plan.broadcast does not give; it must "
                        f"be a vector of the parameters' length, {state.length}"
                    )
                found.append(vectors[name])
        return found[0] if len(found) == 1 else torch.cat(found)

    def rule(self, round: int) -> Rule:
        found = self.server.rule
        for one in self.client_rules:
            found = one.plan.server_rule(round, found)
        return found

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
    ) -> Concluded:
        """Lines 11-16 of Algorithm 1. `replies` are in the order of the clients; `missing` says who else was asked, and
        why there is no reply. `updates` are the replies' updates, where they lie as one matrix."""
        dropped: dict[int, str] = {}
        if len(state.parameters) > state.length:
            bad = [k for k, reply in enumerate(replies) if not bool(reply.statistics.isfinite().all())]
            dropped = dict.fromkeys(bad, BAD_STATISTICS)
        outcome, skipped = self._aggregated(state, round, replies, dropped, updates) if replies else (None, nobody)
        known, term = self._summed(state, replies, updates, outcome)
        next_state = self.server.step(state, outcome, _averaged(replies, outcome), term)
        next_state = replace(next_state, known=known)
        if any(one.rule.keeps for one in self.client_rules):
            next_state = replace(next_state, kept=state.kept | self._kept(round, replies, outcome))
        next_state = self._learned(next_state, round, replies, ask)
        record = self._record(next_state, round, replies, missing, outcome, skipped, dropped)
        return Concluded(next_state, record, outcome)

    def _aggregated(
        self,
        state: ServerState,
        round: int,
        replies: Sequence[Reply],
        dropped: Mapping[int, str],
        updates: Updates | None,
    ) -> tuple[Aggregate | None, str | None]:
        rule = self.rule(round)
        # What another rule left is no state of this one.
        rule_state = state.rule_state if round == 1 or self.rule(round - 1) == rule else None
        good = [reply for k, reply in enumerate(replies) if k not in dropped]
        if not good:
            told = "; ".join(f"client {self.name_of(replies[k].client)}: {why}" for k, why in dropped.items())
            return None, f"no client is left to aggregate: {told}"

        def all_of(key: str) -> list[float | None] | None:
            values = [reply.numbers.get(key) for reply in good]
            return None if None in values else values

        try:
            outcome = aggregate(
                rule,
                updates if updates is not None and not dropped else [reply.update for reply in good],
                losses=all_of(LOSSES[self.told]),
                sizes=[reply.samples for reply in good],
                accuracies=all_of(ACCURACY),
                clients=[self.name_of(reply.client) for reply in good],
                round=round,
                local_lr=self.local_lr(round),
                federation=self.federation,
                state=rule_state,
                guards=self.guards,
            )
        except NoClientLeft as error:
            return None, str(error)
        return _among_all(outcome, {self.name_of(replies[k].client): why for k, why in dropped.items()}, dropped), None

    def _kept(self, round: int, replies: Sequence[Reply], outcome: Aggregate | None) -> dict[str, int]:
        """Who has written what it keeps. Where the server adds up what clients sent, one that was left out goes on from
        what it kept before, so that both sides speak of the same."""
        summed = any(one.rule.sums for one in self.client_rules)
        taken = _taken(outcome) if summed else list(range(len(replies)))
        return {str(replies[k].client): round for k in taken}

    def _summed(
        self, state: ServerState, replies: Sequence[Reply], updates: Updates | None, outcome: Aggregate | None
    ) -> tuple[Tensors, torch.Tensor | None]:
        """What the client rules know after their vectors were added up, and what they add to the direction. What
        screening and guards dropped or bounded is dropped and bounded here too."""
        known, term, taken = dict(state.known), None, _taken(outcome)
        weights = np.ones(len(taken))
        if outcome is not None and outcome.diagnostics.multipliers is not None:
            weights = outcome.diagnostics.multipliers[taken]
        for rule, plan in ((one.rule, one.plan) for one in self.client_rules if one.rule.sums and taken):
            sums: Tensors = {}
            for name in rule.sums:
                if name == "update":
                    rows = Rows(updates if updates is not None else [reply.update for reply in replies])
                else:
                    rows = Rows([reply.vectors[f"{rule.name}.{name}"] for reply in replies])
                finite = screen(rows.select(taken))[0]
                there = [k for k, good in zip(taken, finite, strict=True) if good]
                total = weighted_sum(rows.select(there), weights[finite]) if there else None
                usable = total is not None and bool(total.isfinite().all())
                sums[name] = total if usable and total is not None else torch.zeros(rows.length, dtype=rows.dtype)
            own, more = plan.summed(rule.own(known), sums)
            known |= rule.named(own)
            if more is not None:
                _require_term(rule, more, state.length)
                term = more if term is None else term + more
        return known, term

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
        dropped: Mapping[int, str],
    ) -> RoundRecord:
        members = {client: Participant(self.name_of(client), dropped=why) for client, why in missing.items()}
        coefficients = outcome.coefficients.tolist() if outcome else []
        rates = outcome.diagnostics.rates.tolist() if outcome else []
        for k, reply in enumerate(replies):
            name, number = self.name_of(reply.client), reply.numbers.get
            why = outcome.diagnostics.dropped.get(name) if outcome else dropped.get(k)
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


def improved(record: RoundRecord, losses: Mapping[str, float]) -> RoundRecord:
    """The record with its cohort's training losses after the step, and rho_t from them."""
    members = tuple(
        one if one.before is None or one.client not in losses else one._replace(stepped=losses[one.client])
        for one in record.participants
    )
    both = [(one.before, one.stepped) for one in members if one.before is not None and one.stepped is not None]
    if not both or not np.isfinite(both).all():
        return replace(record, participants=members)
    better = improvement([before for before, _ in both], [after for _, after in both])
    return replace(record, participants=members, rho=better.rho, mean_decrease=better.mean_decrease)


def _among_all(outcome: Aggregate, named: Mapping[str, str], dropped: Mapping[int, str]) -> Aggregate:
    """The outcome of the others with those who were dropped before, at their places among all."""
    if not dropped:
        return outcome
    diagnostics, count = outcome.diagnostics, len(outcome.coefficients) + len(dropped)
    kept = [k for k in range(count) if k not in dropped]
    coefficients, rates = np.zeros(count), np.full(count, np.nan)
    coefficients[kept], rates[kept] = outcome.coefficients, diagnostics.rates
    told = replace(diagnostics, rates=rates, dropped=diagnostics.dropped | dict(named))
    return replace(outcome, coefficients=coefficients, diagnostics=told)


def _taken(outcome: Aggregate | None) -> list[int]:
    """The places of the replies that were not dropped."""
    return [] if outcome is None else [k for k, rate in enumerate(outcome.diagnostics.rates) if not np.isnan(rate)]


def _require_term(rule: ClientRule, term: torch.Tensor, length: int) -> None:
    if not isinstance(term, torch.Tensor) or term.shape != (length,) or not bool(term.isfinite().all()):
        what = f"a tensor of shape {tuple(term.shape)}" if isinstance(term, torch.Tensor) else type(term).__name__
        raise AdafedError(
            f"client rule {rule.name}: Plan.summed gave {what} to add to the direction; it must be a finite vector of "
            f"{length} numbers"
        )


def _averaged(replies: Sequence[Reply], outcome: Aggregate | None) -> torch.Tensor | None:
    """BatchNorm's statistics of the clients that were kept, by sample count, as the parameters of FedAvg."""
    if outcome is None or not len(replies[0].statistics):
        return None
    kept = _taken(outcome)
    if not kept:
        return None
    weights = np.array([replies[k].samples for k in kept], dtype=np.float64)
    own = np.stack([replies[k].statistics.numpy() for k in kept])
    return torch.from_numpy((weights / weights.sum()) @ own).to(replies[0].statistics.dtype)


def _asking(ask: RuleAsk, rule: ClientRule, plan: Plan, state: ServerState) -> Ask:
    return lambda clients, known: ask(rule, plan, clients, known, state)
