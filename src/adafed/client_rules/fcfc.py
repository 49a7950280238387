"""FCFC's constraint on groups (Cui et al. 2021): how differently a client's own people may be treated."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch

from adafed.client_rules.base import (
    LARGEST,
    Ask,
    Begun,
    ClientRule,
    Orders,
    Plan,
    Setting,
    TellingReply,
    Tensors,
    Visit,
    register,
)
from adafed.errors import AdafedError
from adafed.registry import at_least, one_of
from adafed.training.flat_module import FlatModule
from adafed.training.local import GRADIENT_BATCH, Gradients, Samples, summed
from adafed.training.losses import sample_losses
from adafed.training.measuring import EVALUATION_BATCH, answers

MULTIPLIERS = "multipliers"  # of Delta_k <= most and of -Delta_k <= most
FOUND = "found"  # the cohort's largest and mean |Delta_k|, and how many clients told theirs


@register("fcfc")
@dataclass(frozen=True)
class FCFC(ClientRule):
    """A client minimises f_k subject to |Delta_k| <= most, for Delta_k = P(positive | group) - P(positive | others).

    The groups are told by a feature of the inputs: samples where it is larger than `above`, and the others. FCFC's
    smooth Delta_k has softmax(sharpness x outputs) for the decision. Its authors step along the worst client's
    disparity at the server, which takes a second vector from each client. Here each client keeps the multipliers u, v
    of Delta_k <= most and -Delta_k <= most, raises each by `step` times how far the received model is beyond it, or
    lowers it, to 0 at the least, and steps against grad f_k + (u - v) grad Delta_k: the same constrained problem,
    under any server rule and with any number of local steps. Under the rule fcfc it is FCFC's.

    A client whose samples are all of one group has no constraint. Losses that are told to the server stay f_k. The
    largest and the mean |Delta_k| of a round's decisions, on training samples, are in its notes.

    Attributes:
        feature: The feature, counted from 0, that tells the groups.
        above: Samples where it is larger are one group, as the model takes them: after any standardising.
        most: The largest |Delta_k| allowed.
        positive: The class that is the good outcome.
        measure: "parity": over all samples; "opportunity": over those whose true class is the positive one.
        step: Of the multipliers, in a round.
        sharpness: How near the smooth decision is to the real one.
    """

    summary = "the groups of a client's own people are treated alike, up to `most`"
    source = "Cui et al. 2021"
    keeps = (MULTIPLIERS,)
    makes_gradients = True
    feature: int = 0
    above: float = 0.5
    most: float = 0.05
    positive: int = 1
    measure: Literal["parity", "opportunity"] = "parity"
    step: float = 1.0
    sharpness: float = 10.0

    def __post_init__(self) -> None:
        at_least("fcfc.feature", self.feature, 0)
        at_least("fcfc.above", self.above, -LARGEST, most=LARGEST)
        at_least("fcfc.most", self.most, 0.0, most=1.0)
        at_least("fcfc.positive", self.positive, 0)
        one_of("fcfc.measure", self.measure, ("parity", "opportunity"))
        at_least("fcfc.step", self.step, 0.0, strictly=True, most=LARGEST)
        at_least("fcfc.sharpness", self.sharpness, 0.0, strictly=True, most=LARGEST)

    def plan(self, setting: Setting) -> Plan:
        return _Told()

    def samples(self, data: Samples, orders: Orders) -> Samples:
        shape = tuple(data.inputs.shape[1:])
        if len(shape) != 1 or not data.inputs.is_floating_point():
            raise AdafedError(
                f"client rule fcfc tells groups by a feature, and samples here have shape {shape} of "
                f"{data.inputs.dtype}; they must be rows of floats"
            )
        if self.feature >= shape[0]:
            raise AdafedError(f"fcfc.feature is {self.feature}; there are {shape[0]} features, counted from 0")
        return data

    def begin(self, visit: Visit) -> Begun:
        weights = self.weights(visit.data)
        over, under = self._raised(visit, weights)[0]
        if weights is None or over == under:
            return Begun()
        model, data, how, pressure = visit.model, visit.data, visit.trainer.how, over - under

        def constrained(batch: torch.Tensor) -> tuple[Gradients, float]:
            """Of the batch's mean loss and of its share of Delta_k, whose mean over a client's batches is Delta_k."""
            added = 0.0

            def parts() -> Iterator[tuple[None, torch.Tensor]]:
                nonlocal added
                for one in torch.split(batch, how.parts(len(batch), GRADIENT_BATCH)):
                    taken = data.taken(one)
                    outputs = answers(model, taken.inputs)
                    difference = (weights[one] * self._decided(outputs)).sum() * (len(data) / len(batch))
                    added += pressure * difference.item()
                    loss = sample_losses(outputs, taken.targets, how.loss).sum() / len(batch)
                    yield None, loss + pressure * difference

            grads, value = summed(model, parts())
            return grads, value - added

        return Begun(gradients=constrained)

    def end(self, visit: Visit) -> None:
        multipliers, real = self._raised(visit, self.weights(visit.data))
        visit.kept[MULTIPLIERS] = torch.tensor(multipliers, dtype=torch.float64)
        if real is not None:
            visit.tell["disparity"] = real

    def weights(self, data: Samples) -> torch.Tensor | None:
        """w with Delta_k = sum_i w_i decision_i: 1/n of a sample's group, less the same for the others; None where
        there is but one group."""
        member = data.inputs[:, self.feature] > self.above
        counted = data.targets == self.positive if self.measure == "opportunity" else torch.ones_like(member)
        groups = [(member & counted).to(data.inputs.dtype), (~member & counted).to(data.inputs.dtype)]
        if not all(bool(group.any()) for group in groups):
            return None
        return groups[0] / groups[0].sum() - groups[1] / groups[1].sum()

    def _raised(self, visit: Visit, weights: torch.Tensor | None) -> tuple[list[float], float | None]:
        """The multipliers for this visit, and the received model's Delta_k."""
        kept = visit.kept.get(MULTIPLIERS)
        before = [0.0, 0.0] if kept is None else [float(one) for one in kept]
        if weights is None:
            return before, None
        smooth, real = self._differences(visit.model, visit.received, visit.data, weights)
        if not math.isfinite(smooth):
            return before, None
        beyond = (smooth - self.most, -smooth - self.most)
        return [min(max(one + self.step * by, 0.0), LARGEST) for one, by in zip(before, beyond, strict=True)], real

    def _decided(self, outputs: torch.Tensor) -> torch.Tensor:
        """Smoothly, whether each sample gets the positive class."""
        if self.positive >= outputs.shape[-1]:
            raise AdafedError(
                f"fcfc.positive is {self.positive}; the model tells {outputs.shape[-1]} classes apart, from 0"
            )
        return torch.softmax(self.sharpness * outputs, dim=-1)[..., self.positive]

    @torch.no_grad()
    def _differences(
        self, model: FlatModule, theta: torch.Tensor, data: Samples, weights: torch.Tensor
    ) -> tuple[float, float]:
        """Delta_k of smooth decisions and of real ones."""
        model.receive(theta)
        model.module.eval()
        smooth = real = 0.0
        for start in range(0, len(data), EVALUATION_BATCH):
            chosen = slice(start, start + EVALUATION_BATCH)
            outputs = answers(model, data.taken(chosen).inputs)
            smooth += (weights[chosen] * self._decided(outputs)).sum().item()
            real += (weights[chosen] * (outputs.argmax(dim=-1) == self.positive)).sum().item()
        return smooth, real


class _Told(Plan):
    """Knows what the clients of the last round told, for its notes."""

    def fresh(self, length: int) -> Tensors:
        return {FOUND: torch.zeros(3, dtype=torch.float64)}

    def learned(self, round: int, known: Tensors, replies: Sequence[TellingReply], ask: Ask) -> Tensors:
        told = [abs(one) for one in (_share(reply.told.get("disparity")) for reply in replies) if one is not None]
        found = [max(told), math.fsum(told) / len(told), len(told)] if told else [0.0, 0.0, 0]
        return {FOUND: torch.tensor(found, dtype=torch.float64)}

    def notes(self, round: int, known: Tensors) -> dict[str, Any]:
        largest, mean, clients = known[FOUND].tolist()
        return {"disparity": {"largest": largest, "mean": mean, "clients": int(clients)}} if clients else {}


def _share(told: object) -> float | None:
    """What comes from a client may be anything."""
    if isinstance(told, bool) or not isinstance(told, int | float):
        return None
    return float(told) if abs(told) <= 1.0 + 1e-6 else None
