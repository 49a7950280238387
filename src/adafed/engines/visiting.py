"""A client and its rules: how a visit is prepared, trained and ended, and where what travels and stays is put.

A client's row holds its update, its BatchNorm statistics, then the vectors that its rules send; what goes out to it is
the model, then the vectors of the server's that its rules receive. What it keeps is one file, written anew each round.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from adafed.client_rules.base import Begun, ClientRule, Tensors, Told, Visit
from adafed.engines.units import KeptFile, RuleOrders
from adafed.errors import AdafedError
from adafed.files import save_tensors
from adafed.imported import maybe_own
from adafed.training.flat_module import FlatModule
from adafed.training.local import Assignment, BatchGradients, LocalTrainer, Objective, Samples


class _Own(NamedTuple):
    """One rule's view of a visit."""

    rule: ClientRule
    visit: Visit


class Visiting:
    """The rules of a run's clients."""

    def __init__(
        self, rules: Sequence[ClientRule], model: FlatModule, trainer: LocalTrainer, initial: torch.Tensor
    ) -> None:
        self.rules = tuple(rules)
        self.model = model
        self.trainer = trainer
        self.initial = initial
        self.numbers = model.length + model.statistics  # of a model
        self._sent = [(rule.name, name) for rule in rules for name in rule.sends]
        self._broadcast = [(rule.name, name) for rule in rules for name in rule.receives]
        self.width = self.numbers + len(self._sent) * model.length
        self.received_width = self.numbers + len(self._broadcast) * model.length

    @property
    def stacks(self) -> bool:
        """Whether small clients may be trained together: of rules that have a client do no more than be pulled."""
        hooks = ("samples", "end")
        return all(
            rule.stacks
            and not (rule.keeps or rule.sends or rule.receives)
            and all(getattr(type(rule), hook) is getattr(ClientRule, hook) for hook in hooks)
            for rule in self.rules
        )

    @property
    def sends(self) -> bool:
        """Whether clients' rows hold more than updates and statistics."""
        return bool(self._sent)

    def pull(self, work: Assignment, data: Samples, received: torch.Tensor) -> float:
        """Of clients trained together."""
        objective = _objective(self._prepared(work, data, received, {}, {}))
        if not objective.plain:
            names = ", ".join(rule.name for rule in self.rules)
            raise AdafedError(
                f"client rules {names} stack and do more than pull; a rule with stacks = True may only pull"
            )
        return objective.pull

    def samples(self, data: Samples, orders: RuleOrders) -> Samples:
        """What a client trains on, as its rules want it."""
        for rule in self.rules:
            data = rule.samples(data, orders.get(rule.name, {}))
        return data

    def trained(
        self, work: Assignment, data: Samples, received: torch.Tensor, row: torch.Tensor, kept: KeptFile | None,
        orders: RuleOrders,
    ) -> tuple[int, float, dict[str, Told]]:  # fmt: skip
        """One client trained: its row written, what it keeps saved. Steps, running loss, and what it tells."""
        data = data.visited(self.trainer.how.seed, work)
        visits = self._prepared(work, data, received, read(kept, self.rules) if kept else {}, orders)
        theta = received[: self.numbers]
        steps, running = self.trainer.train(theta, data, work, _objective(visits))
        self._write(row, theta)
        ending = [own for own in visits if type(own.rule).end is not ClientRule.end]
        if ending:
            trained = self.model.vector.clone()
            for rule, visit in ending:
                self.model.receive(trained)
                visit.steps, visit.trained = steps, trained
                rule.end(visit)
        self._write_sent(row, visits)
        if kept is not None and kept.target is not None:
            save_tensors(Path(kept.target), _to_keep(visits))
        return steps, running, {rule.name: _plain(rule, visit.tell) for rule, visit in visits if visit.tell}

    def sent(self, row: torch.Tensor) -> Tensors:
        """The vectors in a client's row that its rules sent, each named by its rule."""
        pieces = torch.split(row[self.numbers :], self.model.length)
        return {f"{rule}.{name}": piece for (rule, name), piece in zip(self._sent, pieces, strict=True)}

    def personal_model(self, kept: KeptFile) -> torch.Tensor:
        rule = next(rule for rule in self.rules if rule.personalises)
        return rule.personal_model(rule.own(read(kept, [rule])), self.initial)

    def last_model(
        self, work: Assignment, data: Samples, received: torch.Tensor, kept: KeptFile, orders: RuleOrders
    ) -> torch.Tensor:
        """A client's own model after the last round. Rules that hear from the server or keep something of their own
        have nothing to say in it."""
        data = data.visited(self.trainer.how.seed, work)
        rules = [rule for rule in self.rules if rule.personalises or not (rule.keeps or rule.receives)]
        visits = self._prepared(work, data, received, read(kept, self.rules), orders, rules)
        rule, visit = next(own for own in visits if own.rule.personalises)
        made = rule.at_last(visit)
        if made is not None and kept.target is not None:
            save_tensors(Path(kept.target), {name: one.cpu() for name, one in rule.named(made).items()})
        return rule.personal_model(visit.kept if made is None else made, self.initial)

    def _prepared(
        self, work: Assignment, data: Samples, received: torch.Tensor, kept: Tensors, orders: RuleOrders,
        rules: Sequence[ClientRule] | None = None,
    ) -> list[_Own]:  # fmt: skip
        theta, device = received[: self.numbers], received.device
        found: list[_Own] = []

        def again() -> BatchGradients | None:
            return _objective(found).gradients

        for rule in self.rules if rules is None else rules:
            own = {name: one.to(device) for name, one in rule.own(kept).items()}
            visit = Visit(
                self.model, theta, self.initial.to(device), data, work, self.trainer, orders.get(rule.name, {}), own,
                self._received(rule, received), again=again,
            )  # fmt: skip
            found.append(_Own(rule, visit))
        return found

    def _received(self, rule: ClientRule, received: torch.Tensor) -> Tensors:
        pieces = torch.split(received[self.numbers :], self.model.length) if rule.receives else ()
        both = zip(self._broadcast, pieces, strict=False)
        return {name: piece for (owner, name), piece in both if owner == rule.name}

    def _write(self, row: torch.Tensor, theta: torch.Tensor) -> None:
        length, trained = self.model.length, self.model.vector
        if row.device == trained.device:
            torch.sub(theta[:length], trained[:length], out=row[:length])
        else:
            row[:length] = theta[:length] - trained[:length]
        if self.model.statistics:
            row[length : self.numbers] = trained[length:]

    def _write_sent(self, row: torch.Tensor, ended: Sequence[_Own]) -> None:
        sent = {(rule.name, name): vector for rule, visit in ended for name, vector in visit.send.items()}
        for rule, name in sent.keys() - set(self._sent):
            raise AdafedError(
                f"client rule {rule} put {name!r} into visit.send; what it sends must be named in `sends`"
            )
        start = self.numbers
        for rule, name in self._sent:
            vector = sent.get((rule, name))
            if vector is None or vector.shape != (self.model.length,):
                found = "nothing" if vector is None else f"a tensor of shape {tuple(vector.shape)}"
                raise AdafedError(
                    f"client rule {rule} sends {name!r} and put {found} into visit.send; it must be a vector of the "
                    f"parameters' length, {self.model.length}"
                )
            row[start : start + self.model.length] = vector
            start += self.model.length


def read(kept: KeptFile, rules: Sequence[ClientRule]) -> Tensors:
    """What a client kept, by rule and name; nothing before its first round."""
    if kept.source is None:
        return {}
    try:
        found = load_file(kept.source)
    except (OSError, SafetensorError):
        found = {}
    if any(set(rule.keeps) - rule.own(found).keys() for rule in rules):
        raise AdafedError(f"{kept.source} is missing or damaged: restore it, or begin again in another directory")
    return found


def _to_keep(visits: Sequence[_Own]) -> Tensors:
    found: Tensors = {}
    for rule, visit in visits:
        for name in rule.keeps:
            if not isinstance(visit.kept.get(name), torch.Tensor):
                raise AdafedError(
                    f"client rule {rule.name} keeps {name!r} and put no tensor of that name into visit.kept"
                )
        found |= {name: one.cpu() for name, one in rule.named(visit.kept).items()}
    return found


def _plain(rule: ClientRule, told: Told) -> Told:
    """What a client tells goes through JSON, whoever trains it."""
    try:
        return dict(json.loads(json.dumps(told)))
    except (TypeError, ValueError):
        raise AdafedError(
            f"client rule {rule.name} tells {sorted(told)}; each must be a number, a string or a list of them"
        ) from None


def _begun(rule: ClientRule, visit: Visit) -> Begun:
    with maybe_own("client.rules", rule):
        begun = rule.begin(visit)
    if not isinstance(begun, Begun):
        raise AdafedError(f"client rule {rule.name} began with a {type(begun).__name__}; begin must return a Begun")
    return begun


def _objective(visits: Sequence[_Own]) -> Objective:
    """What the rules together make of the local loss."""
    begun = [_begun(rule, visit) for rule, visit in visits]
    made = [one.gradients for one in begun if one.gradients is not None]
    if len(made) > 1:
        raise AdafedError("client.rules has two rules that make the gradients of a batch; leave one of them out")
    corrections = [one.correct for one in begun if one.correct is not None]
    return Objective(sum(one.pull for one in begun), made[0] if made else None, corrections)
