"""What the public call is given, checked: ids, a number for each client, single numbers, and all that a rule needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch

from adafed.errors import AdafedError
from adafed.server_rules.base import MOST_CLIENTS, Facts, Need, Vector

MADE_HERE = frozenset({"gram", "norms"})  # facts that nobody tells
TOLD = frozenset({"losses", "sizes", "accuracies", "local_lr"})
Values = Sequence[float | None] | np.ndarray[Any, Any] | torch.Tensor


def require(who: str, needs: frozenset[Need], facts: Facts) -> None:
    for need in sorted(needs - MADE_HERE):
        if need not in TOLD:
            raise AdafedError(f"{who} needs {need!r}; it may need {', '.join(sorted(MADE_HERE | TOLD))}")
        if getattr(facts, need) is None:
            shape = "the clients' learning rate" if need == "local_lr" else "one number for each client"
            raise AdafedError(f"{who} needs {need}; pass {need}=, {shape}")


def ids_of(clients: Sequence[object] | None, count: int) -> tuple[str, ...]:
    try:
        ids = tuple(str(client) for client in (range(count) if clients is None else clients))
    except Exception as error:  # whatever an object of the caller's says when it is to be written as text
        raise AdafedError(f"clients is a {type(clients).__name__} ({error}); give a list of ids") from None
    if len(ids) != count:
        raise AdafedError(f"clients has {len(ids)} ids for {count} updates; give one for each")
    if len(set(ids)) < count:
        twice = next(client for client in ids if ids.count(client) > 1)
        raise AdafedError(f"client {twice} is there more than once; the ids of a round must differ")
    return ids


def numbers_of(name: str, values: Values | None, count: int) -> Vector | None:
    if values is None:
        return None
    try:
        if isinstance(values, torch.Tensor | np.ndarray):
            values = values.tolist()
        if isinstance(values, str | bytes | Mapping | Set) or not hasattr(
            values, "__len__"
        ):  # an iterator is read once
            raise TypeError
        if all(type(value) is float for value in values):  # the usual case, and a hundred clients' worth of calls
            numbers = np.array(values, dtype=np.float64)
        else:
            numbers = np.array([np.nan if value is None else _number(value) for value in values], dtype=np.float64)
    except (TypeError, ValueError, OverflowError, RuntimeError):  # the last: a tensor without numbers
        raise AdafedError(f"{name} is {values!r}; give a list with one number for each client") from None
    if len(numbers) != count:
        raise AdafedError(f"{name} has {len(numbers)} values for {count} updates; give one for each")
    return numbers


def single(name: str, value: Any, kind: type[Real | Integral]) -> Any:
    if isinstance(value, torch.Tensor) and value.ndim == 0 and value.layout == torch.strided and not value.is_meta:
        value = value.item()
    if value is None or (isinstance(value, kind) and not isinstance(value, bool)):
        if kind is Integral and isinstance(value, Integral) and int(value) > MOST_CLIENTS:
            raise AdafedError(f"{name} is {value}; it must be at most {MOST_CLIENTS}")
        return value
    raise AdafedError(f"{name} is {value!r}; it must be {'a number' if kind is Real else 'a whole number'}, or None")


def federation_of(value: Any, count: int) -> int | None:
    """How many clients there are in all, where it is said."""
    found: int | None = single("federation", value, Integral)
    if found is not None and found < count:
        raise AdafedError(f"federation is {found}, and there are updates of {count} clients; it must be at least that")
    return found


def _number(value: Any) -> float:
    return float(value.detach() if isinstance(value, torch.Tensor) else value)  # a loss may come with its graph
