"""What a client rule is: what a client does beside plain SGD, and what the server does about it.

The mirror of a server rule: a frozen dataclass whose fields are its options. Its client half has three hooks: `samples`
(what the client trains on), `begin` (how this client trains this time) and `end` (what it keeps and tells). What a
client keeps between rounds, what travels, and what the server knows are all explicit: named tensors and numbers, saved
and sent in one place each. Its server half is a `Plan`, made once for a run.

A server rule's promise is about the updates that were sent. Where a client rule corrects gradients, an update is no
longer the client's own descent, and AdaFed's promise that every client's loss falls does not hold for its loss.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from adafed.registry import Named, Registry, described, options
from adafed.server_rules import Rule
from adafed.training.flat_module import FlatModule
from adafed.training.local import Assignment, BatchGradients, Correction, LocalTrainer, Objective, Samples

LARGEST = 1e9  # of an option: far beyond use, and well before torch's float32 is at its end
Tensors = dict[str, torch.Tensor]
Orders = Mapping[str, Any]
"""What the server tells one client for one rule: numbers, strings and lists of them, so that it goes through JSON."""
Told = dict[str, Any]
"""What a client tells the server for one rule beside its update: numbers and lists of numbers."""


class Begun(NamedTuple):
    """How a client trains this time: `pull` adds pull/2 ||theta - theta_t||^2 to its loss, `gradients` takes the place
    of a batch's plain gradient, `correct` changes each gradient before the step. With a pull alone, networks of dense
    layers keep their fast path."""

    pull: float = 0.0
    gradients: BatchGradients | None = None
    correct: Correction | None = None


@dataclass
class Visit:
    """One client in one round, as a rule sees it. Vectors are flat: parameters first, then BatchNorm's statistics.

    `kept` is what this client kept of the rule in its last round (empty in its first), `broadcast` the server's vectors
    that came with the model, `orders` what the server told this client alone. `begin` reads them. `end` finds the
    trained model in `model` and in `trained`, and writes what the client is to keep, to `send` (vectors, of the
    parameters' length) and to tell.
    """

    model: FlatModule
    received: torch.Tensor
    initial: torch.Tensor  # the first model of all
    data: Samples
    work: Assignment
    trainer: LocalTrainer
    orders: Orders
    kept: Tensors
    broadcast: Tensors
    steps: int = 0
    trained: torch.Tensor | None = None
    send: Tensors = field(default_factory=dict)
    tell: Told = field(default_factory=dict)
    again: Callable[[], BatchGradients | None] = lambda: None  # the batches' gradients from the beginning

    @property
    def update(self) -> torch.Tensor:
        """g_k = theta_t - theta, of the parameters."""
        assert self.trained is not None, "an update is there at the end of a visit"
        return self.received[: self.model.length] - self.trained[: self.model.length]

    def zeros(self) -> torch.Tensor:
        """A vector of the parameters' length."""
        return torch.zeros(self.model.length, device=self.received.device)

    def also_train(
        self, start: torch.Tensor, *, pull: float, lr: float | None = None, epochs: int | None = None
    ) -> torch.Tensor:
        """Another model trained on the client's batches of this round, pulled to the received one; its vector. With
        `epochs`, so many of them instead of the round's, of which the first have the same batches."""
        trainer, objective = self.trainer, Objective(pull, self.again())
        if epochs is not None:
            trainer = LocalTrainer(self.model, replace(trainer.how, epochs=epochs))
        trainer.train(start, self.data, self.work, objective, anchor=self.received, lr=lr)
        return self.model.vector.clone()


class Draw(NamedTuple):
    """Whom a plan wants in a round: all of these `clients` (indices), or a cohort of the usual size from among them."""

    clients: npt.NDArray[np.int64]
    all: bool


@dataclass(frozen=True)
class Setting:
    """What a plan may build on: how many clients and rounds there are, and the seed of all that happens in rounds."""

    clients: int
    rounds: int
    seed: int


class TellingReply(NamedTuple):
    """Of a client's reply, what its rule told."""

    client: int
    told: Told


Ask = Callable[[Sequence[int], Mapping[str, torch.Tensor]], list[TellingReply]]
"""Another phase of the round: these clients answer with `ClientRule.answer`, under orders made from what is known."""


class Plan:
    """A client rule's half of the server. `known`, its named tensors, is part of the server's state and is saved with
    it; every method is a function of what it is given. This one does nothing: a rule overrides what it needs."""

    def fresh(self, length: int) -> Tensors:
        """What is known before the first round; the model has `length` parameters."""
        return {}

    def largest(self, usual: int) -> int:
        """The largest cohort there can be."""
        return usual

    def draw(self, round: int, known: Tensors) -> Draw | None:
        """Whom to ask in this round; None leaves it to the configuration."""
        return None

    def server_rule(self, round: int, own: Rule) -> Rule:
        """The rule that aggregates this round."""
        return own

    def broadcast(self, known: Tensors) -> Tensors:
        """Vectors that go out with the model, by the names of `ClientRule.receives`."""
        return {}

    def orders(self, round: int, client: int, known: Mapping[str, torch.Tensor]) -> Orders:
        return {}

    def summed(self, known: Tensors, sums: Tensors) -> tuple[Tensors, torch.Tensor | None]:
        """What is known after the round's vectors (`ClientRule.sums`) were added up over the replies, and a term to add
        to the direction before the server steps against it."""
        return known, None

    def learned(self, round: int, known: Tensors, replies: Sequence[TellingReply], ask: Ask) -> Tensors:
        """What is known after the server's step."""
        return known

    def notes(self, round: int, known: Tensors) -> dict[str, Any]:
        """For the round's record."""
        return {}


@dataclass(frozen=True)
class ClientRule(Named):
    """Base of all client rules: a frozen dataclass whose fields are its options.

    Any can be listed in `[client] rules`.

    Attributes:
        name: What it is registered under, or `module:attribute`.
        summary: The line that `adafed list client-rules` prints.
        section: The name of its table in a configuration, if it has one.
        shorthand: As in ("local.mu", "mu"): it is on where that key is not 0, which is that option.
        keeps: Names of what a client keeps between rounds.
        receives: Vectors of the server's that go out with the model.
        sends: Vectors that come back beside the update, of the parameters' length.
        sums: Of those and "update", what the plan wants added up.
        stacks: Whether small clients may still be trained together: `begin` gives a pull alone.
        personalises: Whether clients end with a model of their own.
        makes_gradients: Whether `begin` ever gives the gradients of batches, which one rule alone can.
        work: How much a client computes, in units of plain training.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    section: ClassVar[str | None] = None
    shorthand: ClassVar[tuple[str, str] | None] = None
    keeps: ClassVar[tuple[str, ...]] = ()
    receives: ClassVar[tuple[str, ...]] = ()
    sends: ClassVar[tuple[str, ...]] = ()
    sums: ClassVar[tuple[str, ...]] = ()
    stacks: ClassVar[bool] = False
    personalises: ClassVar[bool] = False
    makes_gradients: ClassVar[bool] = False
    work: ClassVar[float] = 1.0

    def plan(self, setting: Setting) -> Plan:
        return Plan()

    def samples(self, data: Samples, orders: Orders) -> Samples:
        """What the client trains on, and is measured on where its training loss is asked for."""
        return data

    def begin(self, visit: Visit) -> Begun:
        """How the client trains. Called again in a visit that trains a second model on the same batches."""
        return Begun()

    def end(self, visit: Visit) -> None:
        """After the local steps: what the client keeps, sends and tells."""

    def answer(self, model: FlatModule, data: Samples) -> Told:
        """What a client says to `Ask`, with the global model in `model`."""
        raise AssertionError(f"{self.name} asks nothing")

    def personal_model(self, kept: Tensors, initial: torch.Tensor) -> torch.Tensor:
        """The model a client itself uses, where the rule personalises."""
        raise AssertionError(f"{self.name} has no personal models")

    def at_last(self, visit: Visit) -> Tensors | None:
        """Where the rule personalises: what a client makes of its model after the last round, when `visit` has received
        the final global one, for `personal_model`. What it keeps for another round stays as it is. None: that will do.
        """
        return None

    def trained_rounds(self, rounds: int, clients: int, share: float) -> float:
        """As many rounds of the usual cohort, this `share` of the clients, as the run's work amounts to."""
        return rounds

    def own(self, named: Mapping[str, torch.Tensor]) -> Tensors:
        """Of the named tensors of all rules, those of this one, under its own names."""
        prefix = f"{self.name}."
        return {name.removeprefix(prefix): one for name, one in named.items() if name.startswith(prefix)}

    def named(self, own: Mapping[str, torch.Tensor]) -> Tensors:
        """The other way round."""
        return {f"{self.name}.{name}": one for name, one in own.items()}

    @property
    def label(self) -> str:
        """How it is called in a table when nobody named the method; nothing for what changes no method."""
        return str(self)

    def options(self) -> dict[str, Any]:
        return options(self)

    def __str__(self) -> str:
        return described(self)


CLIENT_RULES: Registry[type[ClientRule]] = Registry("client rule", base=ClientRule, name_key="client.rules")
register = CLIENT_RULES.register
client_rules = CLIENT_RULES.names
client_rule = CLIENT_RULES.make
