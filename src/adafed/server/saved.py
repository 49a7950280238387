"""Whether a saved state is whole, and of the run it is read for: types, shapes, and what its parts have in common.

A file on disk may be torn, edited, or another run's. What is wrong with it is told as a reason, so that an older file
can take its place.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from adafed.errors import AdafedError

Tensors = Mapping[str, torch.Tensor]


class DamagedState(AdafedError):
    """What was read is no state, or another run's."""


def digest(tensors: Tensors, text: str) -> str:
    """Of all that a state consists of. The numbers count by their sum, which takes no longer than reading them and
    shows pages that a power cut has lost."""
    parts: list[object] = [text]
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        raw = tensor.reshape(-1).view(torch.uint8).numpy()
        whole = len(raw) // 8 * 8
        total = int(raw[:whole].view(np.uint64).sum(dtype=np.uint64)) + int(raw[whole:].sum(dtype=np.uint64))
        parts.append([name, str(tensor.dtype), list(tensor.shape), total])
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def check_numbers(numbers: Any, parameters: torch.Tensor | None) -> None:
    """The plain numbers of a state, and the vector they speak of; what only a rule knows is left to it."""
    if parameters is None or parameters.ndim != 1 or not parameters.is_floating_point():
        raise DamagedState("it holds no vector of parameters")
    if not isinstance(numbers, dict):
        raise DamagedState("it holds no table of numbers")
    for key, most in (("round", None), ("length", len(parameters))):
        value = numbers.get(key)
        if type(value) is not int or value < 0 or (most is not None and value > most):
            raise DamagedState(f"its {key} is {value!r}")
    kept = numbers.get("kept", numbers.get("personal"))  # the name of version 0.1
    if not isinstance(kept, dict) or not all(name.isdecimal() and _counts(of) for name, of in kept.items()):
        raise DamagedState("it does not say what clients keep")
    losses = numbers.get("losses", {})
    if not isinstance(losses, dict) or not all(name.isdecimal() and _finite(loss) for name, loss in losses.items()):
        raise DamagedState("the losses in it are no numbers")
    if "step" in numbers and not (_finite(numbers["step"]) and numbers["step"] > 0):
        raise DamagedState(f"its step is {numbers['step']!r}")
    for key in ("rule", "guards"):
        if not isinstance(numbers.get(key, {}), dict):
            raise DamagedState(f"its state of the {key} is no table")
    if not all(isinstance(one, dict) for one in numbers.get("guards", {}).values()):
        raise DamagedState("its state of the guards is no table")


def check_rows(rows: torch.Tensor | None, count: int, length: int) -> None:
    """The remembered updates that lie in the checkpoint itself."""
    if rows is None and count == 0:
        return
    if rows is None or rows.shape != (count, length) or not rows.is_floating_point():
        raise DamagedState("the updates it remembers are not those it names")


def check_told(tensors: Tensors, count: int) -> None:
    """What is remembered of so many updates beside them."""
    for name, shape in (("memory.told", (5, count)), ("memory.gram", (count, count))):
        one = tensors.get(name)
        if one is not None and (one.shape != shape or one.dtype != torch.float64):
            raise DamagedState("what it remembers of the updates does not fit them")


def alike(given: Any, pattern: Mapping[str, Any]) -> bool:
    """Whether one of our rules' states has the keys and the kinds of its first: numbers, and tables of numbers."""
    return (
        isinstance(given, dict)
        and given.keys() == pattern.keys()
        and all(_same_kind(given[key], one) for key, one in pattern.items())
    )


def _same_kind(given: Any, pattern: Any) -> bool:
    if isinstance(pattern, dict):
        return isinstance(given, dict) and all(isinstance(key, str) and _finite(one) for key, one in given.items())
    return _finite(given)


def _finite(value: Any) -> bool:
    return isinstance(value, int | float) and abs(value) <= _LARGEST and not math.isnan(value)


def _counts(value: Any) -> bool:
    return type(value) is int and value >= 0


_LARGEST = float(np.finfo(np.float64).max)
