"""Server optimisers: what is done with the direction d that a rule found. All step *against* d.

The pseudo-gradient is g = theta - theta_k, so descent is theta - rate * (...); the paper prints FedAdam with a plus
sign beside the same g, which would climb. Constants are those of Reddi et al. 2021: beta1 = 0.9, beta2 = 0.99,
tau = 1e-3, no bias correction; v_0 is 0 here unless `initial` says else. State goes in and comes out, so saving it is
enough to resume.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from adafed.errors import AdafedError
from adafed.registry import Named, Registry, at_least, below

Moments = dict[str, torch.Tensor]


class ServerOptimizer(Named, ABC):
    """One server step: new parameters and new state from the old ones, the direction and the rate of the round."""

    @abstractmethod
    def step(
        self,
        parameters: torch.Tensor,
        direction: torch.Tensor,
        rate: float,
        state: Mapping[str, torch.Tensor],
    ) -> tuple[torch.Tensor, Moments]:
        """The state that comes in is not changed."""


OPTIMIZERS: Registry[type[ServerOptimizer]] = Registry("server optimiser", "server.optimizer", ServerOptimizer)


def optimizers() -> tuple[str, ...]:
    """The names of all server optimisers.

    Returns:
        As `adafed list optimizers` prints them.
    """
    return OPTIMIZERS.names()


def optimizer(name: str, **options: Any) -> ServerOptimizer:
    """The server optimiser called `name`: what is done with the direction that a rule found.

    Args:
        name: One of `optimizers()`, or `module:attribute` for your own.
        **options: Its options, as in `momentum=0.9`.

    Returns:
        An optimiser with a method `step(parameters, direction, rate, state)`, which returns new parameters and state.

    Raises:
        AdafedError: For an unknown name or option, or a value out of its range.

    Examples:
        >>> import torch, adafed
        >>> server = adafed.optimizer("sgd", momentum=0.5)
        >>> theta, moments = server.step(torch.zeros(2), torch.ones(2), 0.1, {})
        >>> theta
        tensor([-0.1000, -0.1000])
    """
    return OPTIMIZERS.make(name, **options)


def _require_alike(parameters: torch.Tensor, direction: torch.Tensor) -> None:
    """torch would stretch a direction of one number over all parameters."""
    if parameters.shape != direction.shape:
        theirs, ours = tuple(direction.shape), tuple(parameters.shape)
        raise AdafedError(f"direction has the shape {theirs}; it must be that of the parameters, {ours}")


def _moment(state: Mapping[str, torch.Tensor], key: str, like: torch.Tensor, initial: float = 0.0) -> torch.Tensor:
    found = state[key] if key in state else torch.full_like(like, initial)
    if found.shape != like.shape:
        theirs, ours = tuple(found.shape), tuple(like.shape)
        raise AdafedError(f"state[{key!r}] has the shape {theirs}; it must be {ours}, as of the step that returned it")
    return found


@OPTIMIZERS.register("sgd")
@dataclass(frozen=True)
class SGD(ServerOptimizer):
    """theta - rate * m with m <- momentum * m + d: heavy ball, FedFA's server momentum in its textbook form.

    Attributes:
        momentum: How much of the last m is kept; 0 is plain SGD.
    """

    summary: ClassVar[str] = "theta - rate * d, with optional heavy-ball momentum"
    momentum: float = 0.0

    def __post_init__(self) -> None:
        below("server.optimizer.momentum", self.momentum, 1.0)

    def step(
        self,
        parameters: torch.Tensor,
        direction: torch.Tensor,
        rate: float,
        state: Mapping[str, torch.Tensor],
    ) -> tuple[torch.Tensor, Moments]:
        _require_alike(parameters, direction)
        if not self.momentum:
            return torch.add(parameters, direction, alpha=-rate), {}
        first = torch.add(direction, _moment(state, "first", direction), alpha=self.momentum)
        return torch.add(parameters, first, alpha=-rate), {"first": first}


@OPTIMIZERS.register("fedfa-easyfl")
@dataclass(frozen=True)
class EasyFLMomentum(ServerOptimizer):
    """FedFA's momentum as easyFL's code has it: theta - rate * (d - lr * m), m <- momentum m + (1 - momentum) d.

    It *subtracts* the running mean of the steps, a mild anti-momentum. That is what produced the published FedFA rows.

    Attributes:
        momentum: How much of the last m is kept.
        lr: How much of m is subtracted from the direction.
    """

    summary: ClassVar[str] = "FedFA's momentum as easyFL's code has it (opposite sign)"
    momentum: float = 0.5
    lr: float = 0.1

    def __post_init__(self) -> None:
        below("server.optimizer.momentum", self.momentum, 1.0)
        at_least("server.optimizer.lr", self.lr, 0.0)

    def step(
        self,
        parameters: torch.Tensor,
        direction: torch.Tensor,
        rate: float,
        state: Mapping[str, torch.Tensor],
    ) -> tuple[torch.Tensor, Moments]:
        _require_alike(parameters, direction)
        first = _moment(state, "first", direction) * self.momentum + (1.0 - self.momentum) * direction
        return parameters - rate * (direction - self.lr * first), {"first": first}


@dataclass(frozen=True)
class _Adaptive(ServerOptimizer):
    """theta - rate * m / (sqrt(v) + tau); the four methods differ in how v moves."""

    beta1: float = 0.9
    beta2: float = 0.99
    tau: float = 1e-3
    initial: float = 0.0  # v before the first round; the proofs of Reddi et al. take tau^2
    bias_correction: bool = False

    def __post_init__(self) -> None:
        below("server.optimizer.beta1", self.beta1, 1.0)
        below("server.optimizer.beta2", self.beta2, 1.0)
        at_least("server.optimizer.tau", self.tau, 0.0, strictly=True)
        at_least("server.optimizer.initial", self.initial, 0.0)

    def second_moment(self, second: torch.Tensor, square: torch.Tensor) -> torch.Tensor:
        return self.beta2 * second + (1.0 - self.beta2) * square

    def step(
        self,
        parameters: torch.Tensor,
        direction: torch.Tensor,
        rate: float,
        state: Mapping[str, torch.Tensor],
    ) -> tuple[torch.Tensor, Moments]:
        _require_alike(parameters, direction)
        first = self.beta1 * _moment(state, "first", direction) + (1.0 - self.beta1) * direction
        second = self.second_moment(_moment(state, "second", direction, self.initial), direction.square())
        moments = {"first": first, "second": second}
        if self.bias_correction:  # Kingma and Ba; tau stays outside the correction, as in Keras
            steps = _moment(state, "steps", torch.zeros(1, dtype=torch.float64)) + 1.0
            moments["steps"] = steps
            rate *= float(self._corrected(steps))
        denominator = self._denominator(second, state, moments)
        return parameters - rate * (first / denominator.sqrt().add_(self.tau)), moments

    def _corrected(self, steps: torch.Tensor) -> torch.Tensor:
        """What the rate is multiplied by for m and v having started at 0 so many steps ago."""
        return (1.0 - self.beta2**steps).sqrt() / (1.0 - self.beta1**steps)

    def _denominator(self, second: torch.Tensor, state: Mapping[str, torch.Tensor], moments: Moments) -> torch.Tensor:
        return second


@OPTIMIZERS.register("adam")
@dataclass(frozen=True)
class Adam(_Adaptive):
    """FedAdam: v <- beta2 v + (1 - beta2) d^2.

    Attributes:
        beta1: How much of the last first moment m is kept.
        beta2: How much of the last second moment v is kept; FedAdagrad adds up instead.
        tau: Added to the root of v: the smallest denominator.
        initial: v before the first round; the proofs of Reddi et al. take tau^2.
        bias_correction: Divide out, as Kingma and Ba do, that m and v start at 0.
    """

    summary: ClassVar[str] = "FedAdam"


@OPTIMIZERS.register("yogi")
@dataclass(frozen=True)
class Yogi(_Adaptive):
    """FedYogi: v <- v - (1 - beta2) d^2 sign(v - d^2).

    Attributes:
        beta1: How much of the last first moment m is kept.
        beta2: How much of the last second moment v is kept; FedAdagrad adds up instead.
        tau: Added to the root of v: the smallest denominator.
        initial: v before the first round; the proofs of Reddi et al. take tau^2.
        bias_correction: Divide out, as Kingma and Ba do, that m and v start at 0.
    """

    summary: ClassVar[str] = "FedYogi"

    def second_moment(self, second: torch.Tensor, square: torch.Tensor) -> torch.Tensor:
        return second - (1.0 - self.beta2) * square * torch.sign(second - square)


@OPTIMIZERS.register("adagrad")
@dataclass(frozen=True)
class Adagrad(_Adaptive):
    """FedAdagrad: v <- v + d^2, and no first moment (beta1 = 0).

    Attributes:
        beta1: How much of the last first moment m is kept.
        beta2: How much of the last second moment v is kept; FedAdagrad adds up instead.
        tau: Added to the root of v: the smallest denominator.
        initial: v before the first round; the proofs of Reddi et al. take tau^2.
        bias_correction: Divide out that m starts at 0; v is a sum, and right as it is.
    """

    summary: ClassVar[str] = "FedAdagrad"
    beta1: float = 0.0

    def second_moment(self, second: torch.Tensor, square: torch.Tensor) -> torch.Tensor:
        return second + square

    def _corrected(self, steps: torch.Tensor) -> torch.Tensor:
        return 1.0 / (1.0 - self.beta1**steps)  # a sum that starts at 0 is no mean that is too small


@OPTIMIZERS.register("amsgrad")
@dataclass(frozen=True)
class AMSGrad(_Adaptive):
    """FedAMSGrad: Adam's v, but the denominator never falls: v_max <- max(v_max, v).

    Attributes:
        beta1: How much of the last first moment m is kept.
        beta2: How much of the last second moment v is kept; FedAdagrad adds up instead.
        tau: Added to the root of v: the smallest denominator.
        initial: v before the first round; the proofs of Reddi et al. take tau^2.
        bias_correction: Divide out, as Kingma and Ba do, that m and v start at 0.
    """

    summary: ClassVar[str] = "FedAMSGrad"

    def _denominator(self, second: torch.Tensor, state: Mapping[str, torch.Tensor], moments: Moments) -> torch.Tensor:
        moments["largest"] = torch.maximum(_moment(state, "largest", second, self.initial), second)
        return moments["largest"]
