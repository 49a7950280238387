"""Data made by a function of the user's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from adafed.data.arrays import ArraysFederation, checked_arrays
from adafed.data.base import Dataset, Normalisation, sha256
from adafed.errors import AdafedError
from adafed.imported import own_code
from adafed.registry import Registry


def from_function(
    spec: str,
    options: Mapping[str, Any] | None = None,
    *,
    classes: int | None = None,
    validation: float = 0.1,
    test: float = 0.1,
    seed: int = 0,
    normalisation: Normalisation | None = None,
    key: str = "data.function",
) -> Dataset | ArraysFederation:
    """Data from the user's function, called with `options`.

    It returns either (x, y), a data set that is still to be partitioned, or a dictionary from client id to
    (x, y) or to the arrays of a client's npz file (`x`, `y` and optionally `x_validation`, ..., `y_test`).
    `key` is the configuration's key that names it.
    """
    functions: Registry[Callable[..., object]] = Registry("function", "data", name_key=key)
    handed = dict(options or {})
    if classes is not None and "classes" in functions.options(spec):
        handed["classes"] = classes
    functions.arguments(spec, handed)  # a wrong option is the configuration's mistake, not the function's
    with own_code(key, spec):
        made = functions.call(spec, handed)
    if isinstance(made, Mapping):
        return ArraysFederation(
            spec,
            made,
            classes=classes,
            validation=validation,
            test=test,
            seed=seed,
            normalisation=normalisation,
        )
    if not isinstance(made, tuple) or len(made) != 2:
        raise AdafedError(
            f"{key} = {spec!r} returned {type(made).__name__}; "
            "it must return (x, y) or a dictionary from client id to arrays."
        )
    x, y = checked_arrays(f"{key} = {spec!r}", "", made[0], made[1], classes)
    count = int(y.max(initial=0)) + 1 if classes is None else classes
    return Dataset(spec, x, y, count, normalisation or Normalisation(), sha256(x, y))
