"""The server: its whole state in one value, and the step that turns a round's outcome into the next state."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import torch

from adafed.errors import AdafedError
from adafed.server.aggregate import Aggregate, RuleState
from adafed.server.optimizers import Moments, ServerOptimizer, optimizer
from adafed.server.schedules import Schedule, schedule
from adafed.server_rules import Rule, rule

MOST = 1e30  # a rate; float32 ends soon after

Tensors = dict[str, torch.Tensor]


@dataclass(frozen=True)
class ServerState:
    """All that must be saved to go on after this round: the model, the rule's and the optimiser's state.

    `parameters` is flat; what follows the first `length` numbers of it are statistics (BatchNorm), which are averaged
    rather than stepped. `personal` names the round in which each client last wrote its Ditto model; `correction` is
    what FedCorr knows of the clients.
    """

    parameters: torch.Tensor
    length: int
    round: int = 0
    rule_state: RuleState | None = None
    moments: Moments = field(default_factory=dict)
    personal: dict[str, int] = field(default_factory=dict)
    correction: Tensors = field(default_factory=dict)

    def packed(self) -> tuple[Tensors, str]:
        """As tensors and JSON, for a safetensors file."""
        tensors: Tensors = {"parameters": self.parameters}
        tensors |= {f"moment.{name}": moment for name, moment in self.moments.items()}
        tensors |= {f"correction.{name}": tensor for name, tensor in self.correction.items()}
        numbers: dict[str, object] = {"round": self.round, "length": self.length, "personal": self.personal}
        if self.rule_state is not None:
            numbers["rule"] = self.rule_state.numbers
            numbers["memory"] = self.rule_state.memory
            if self.rule_state.vectors is not None:
                tensors["memory"] = self.rule_state.vectors
        return tensors, json.dumps(numbers)

    @classmethod
    def unpacked(cls, tensors: Mapping[str, torch.Tensor], text: str) -> ServerState:
        numbers = json.loads(text)
        rule_state = None
        if "rule" in numbers:
            memory = tuple((str(client), int(round_)) for client, round_ in numbers["memory"])
            rule_state = RuleState(numbers["rule"], memory, tensors.get("memory"))
        moments, correction = (
            {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
            for prefix in ("moment.", "correction.")
        )
        return cls(
            parameters=tensors["parameters"],
            length=numbers["length"],
            round=numbers["round"],
            rule_state=rule_state,
            moments=moments,
            personal=numbers["personal"],
            correction=correction,
        )


@dataclass(frozen=True)
class Server:
    """The parts that do not change from round to round."""

    rule: Rule
    optimizer: ServerOptimizer
    schedule: Schedule
    rate: float

    @classmethod
    def made(
        cls,
        rule_entry: tuple[str, dict[str, object]],
        optimizer_entry: tuple[str, dict[str, object]],
        schedule_entry: tuple[str, dict[str, object]],
        rate: float,
    ) -> Server:
        """From names and options, as a configuration has them."""
        return cls(
            rule(rule_entry[0], **rule_entry[1]),  # type: ignore[arg-type]  # options are checked by the registry
            optimizer(optimizer_entry[0], **optimizer_entry[1]),
            schedule(schedule_entry[0], **schedule_entry[1]),
            rate,
        )

    def rate_of(self, round: int) -> float:
        """eta_t."""
        try:
            rate = self.rate * self.schedule(round)
        except OverflowError:
            rate = float("inf")
        if not rate <= MOST:
            raise AdafedError(f"the server's rate is {rate:g} in round {round}; lower server.rate or its schedule")
        return rate

    def step(self, state: ServerState, outcome: Aggregate | None, statistics: torch.Tensor | None) -> ServerState:
        """theta_{t+1} from theta_t; without an outcome (a skipped round) only the round moves on."""
        if outcome is None:
            return replace(state, round=state.round + 1)
        old = state.parameters[: state.length]
        new, moments = self.optimizer.step(old, outcome.direction, self.rate_of(state.round + 1), state.moments)
        rest = state.parameters[state.length :] if statistics is None else statistics
        parameters = torch.cat([new, rest]) if len(rest) else new
        return replace(state, parameters=parameters, round=state.round + 1, rule_state=outcome.state, moments=moments)
