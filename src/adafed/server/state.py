"""The server: its whole state in one value, and the step that turns a round's outcome into the next state."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from numbers import Real

import torch

from adafed.errors import AdafedError
from adafed.files import parsed
from adafed.imported import maybe_own, ours
from adafed.server.aggregate import Aggregate, RuleState
from adafed.server.memory import Memory
from adafed.server.optimizers import Moments, ServerOptimizer
from adafed.server.row_files import RowStore
from adafed.server.saved import alike, check_numbers
from adafed.server.schedules import Schedule
from adafed.server.steps import StepKind, require_plain
from adafed.server_rules import Rule

MOST = 1e30  # a rate; float32 ends soon after
PROBE = 3  # numbers: a length that no moment of another kind has

Tensors = dict[str, torch.Tensor]


@dataclass(frozen=True)
class ServerState:
    """All that must be saved to go on after this round: the model, the rule's and the optimiser's state.

    `parameters` is flat; what follows the first `length` numbers of it are statistics (BatchNorm), which are averaged
    rather than stepped. `kept` names the round in which each client last wrote what it keeps; `known` is what the
    server's halves of the client rules know, each tensor named by its rule. `losses` are the last that clients told,
    where they decide who is drawn; `step` is the length that a safe step is tried with first in the next round.
    """

    parameters: torch.Tensor
    length: int
    round: int = 0
    rule_state: RuleState | None = None
    moments: Moments = field(default_factory=dict)
    kept: dict[str, int] = field(default_factory=dict)
    known: Tensors = field(default_factory=dict)
    losses: dict[str, float] = field(default_factory=dict)
    step: float | None = None

    def packed(self) -> tuple[Tensors, str]:
        """As tensors and JSON, for a safetensors file."""
        tensors: Tensors = {"parameters": self.parameters}
        tensors |= {f"moment.{name}": moment for name, moment in self.moments.items()}
        tensors |= {f"known.{name}": tensor for name, tensor in self.known.items()}
        numbers: dict[str, object] = {"round": self.round, "length": self.length, "kept": self.kept}
        if self.losses:
            numbers["losses"] = self.losses
        if self.step is not None:
            numbers["step"] = self.step
        if self.rule_state is not None:
            numbers["rule"] = self.rule_state.numbers
            more, told = self.rule_state.known.packed()
            tensors |= more
            numbers |= told
            if self.rule_state.guards:
                numbers["guards"] = self.rule_state.guards
        return tensors, json.dumps(numbers)

    @classmethod
    def unpacked(cls, tensors: Mapping[str, torch.Tensor], text: str, store: RowStore | None = None) -> ServerState:
        """From a file; `store` has the remembered updates that lie in a file of their own. What cannot be a state is
        refused (`DamagedState`)."""
        numbers = parsed(text)
        check_numbers(numbers, tensors.get("parameters"))
        rule_state = None
        if "rule" in numbers:
            updates = Memory.unpacked(tensors, numbers, numbers["length"], store)
            rule_state = RuleState(numbers["rule"], updates, numbers.get("guards", {}))
        rest = {name: one for name, one in tensors.items() if name.partition(".")[0] not in ("parameters", "memory")}
        moments = {name.removeprefix("moment."): one for name, one in rest.items() if name.startswith("moment.")}
        # Version 0.1 had no prefix, and another name for what clients keep; a rule knows its own names of then.
        known = {name.removeprefix("known."): one for name, one in rest.items() if not name.startswith("moment.")}
        return cls(
            parameters=tensors["parameters"],
            length=numbers["length"],
            round=numbers["round"],
            rule_state=rule_state,
            moments=moments,
            kept=numbers["kept"] if "kept" in numbers else numbers["personal"],
            known=known,
            losses={str(client): float(loss) for client, loss in numbers.get("losses", {}).items()},
            step=float(numbers["step"]) if "step" in numbers else None,
        )


@dataclass(frozen=True)
class Server:
    """The parts that do not change from round to round."""

    rule: Rule
    optimizer: ServerOptimizer
    schedule: Schedule
    rate: float
    kind: StepKind = "rate"  # how long its steps are

    def __post_init__(self) -> None:
        if self.kind == "safe":
            require_plain(self.optimizer, self.schedule)

    def rate_of(self, round: int) -> float:
        """eta_t."""
        try:
            with maybe_own("server.schedule", self.schedule):
                factor: object = self.schedule(round)
            if not isinstance(factor, Real):
                raise AdafedError(f"server.schedule = {self.schedule.name!r} returned {factor!r}; it must be a number")
            rate = self.rate * float(factor)
        except OverflowError:
            rate = float("inf")
        if not rate <= MOST:
            raise AdafedError(f"the server's rate is {rate:g} in round {round}; lower server.rate or its schedule")
        return rate

    def unfit(self, state: ServerState, first: ServerState, *, rule: Rule | None = None) -> str | None:
        """Why a saved state cannot be a later one of the run that begins with `first`; None where it can. `rule` is the
        one whose state it holds, where that is known."""
        mine, its = first.parameters, state.parameters
        if (len(its), state.length) != (len(mine), first.length):
            return f"the checkpoint holds a model of {len(its)} numbers, and there is one of {len(mine)}"
        if its.dtype != mine.dtype:
            return f"the checkpoint's parameters are {its.dtype}, and the model's {mine.dtype}"
        if self.kind == "safe" and state.rule_state is not None and state.step is None:
            return "the checkpoint lacks the length of a safe step"
        if state.rule_state is None:
            return "the checkpoint holds moments and no step" if state.moments else None
        if rule is not None and ours(rule) and not alike(state.rule_state.numbers, rule.initial_state()):
            return f"the checkpoint holds no state of rule {rule.name}"
        probe = torch.zeros(PROBE)  # what the optimiser carries on, seen on a step of a few numbers
        moments = self.optimizer.step(probe, probe, 1.0, {})[1] if ours(self.optimizer) else {}
        for name, moment in moments.items():
            there, shape = state.moments.get(name), (first.length,) if moment.shape == (PROBE,) else moment.shape
            if there is None or there.shape != shape or not there.is_floating_point():
                return f"the checkpoint lacks {name!r} of server.optimizer, or has it in another shape"
        return None

    def step(
        self,
        state: ServerState,
        outcome: Aggregate | None,
        statistics: torch.Tensor | None,
        term: torch.Tensor | None = None,
        length: float | None = None,
    ) -> ServerState:
        """theta_{t+1} from theta_t; without an outcome (a skipped round) only the round moves on. A `term` is added to
        the direction. A `length` other than the rate's is a safe step's; at 0 the model stays as it is."""
        if outcome is None:
            return replace(state, round=state.round + 1)
        if length == 0:
            return replace(state, round=state.round + 1, rule_state=outcome.state)
        old = state.parameters[: state.length]
        direction = outcome.direction if term is None else outcome.direction + term
        rate = self.rate_of(state.round + 1) if length is None else length
        new, moments = self._optimized(old, direction, rate, state.moments)
        rest = state.parameters[state.length :] if statistics is None else statistics
        parameters = torch.cat([new, rest]) if len(rest) else new
        return replace(state, parameters=parameters, round=state.round + 1, rule_state=outcome.state, moments=moments)

    def _optimized(
        self, old: torch.Tensor, direction: torch.Tensor, rate: float, moments: Moments
    ) -> tuple[torch.Tensor, Moments]:
        with maybe_own("server.optimizer", self.optimizer):
            found: object = self.optimizer.step(old, direction, rate, moments)
        match found:
            case (torch.Tensor() as new, Mapping() as kept) if new.shape == old.shape and all(
                isinstance(name, str) and isinstance(one, torch.Tensor) for name, one in kept.items()
            ):
                return new, dict(kept)
        raise AdafedError(
            f"server.optimizer = {self.optimizer.name!r} did not return what it must: new parameters, of the old ones' "
            "shape, and a dict of tensors"
        )
