"""The user's own code, named `module:attribute` in a configuration, and data sets made by it."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Mapping
from typing import Any

from adafed.data.arrays import ArraysFederation, checked_arrays
from adafed.data.base import Dataset, Normalisation, sha256
from adafed.errors import AdafedError


def attribute(spec: str, key: str) -> Any:
    """What `module:attribute` names; modules in the current directory count, as with `python -m`.

    `key` is the configuration's key, for the message when there is no such thing.
    """
    module_name, colon, path = spec.partition(":")
    if not (colon and module_name and path):
        raise AdafedError(f"{key} = {spec!r} must have the form 'module:attribute'.")
    here = os.getcwd()
    if "" not in sys.path and here not in sys.path:
        sys.path.insert(0, here)
        importlib.invalidate_caches()
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and (module_name + ".").startswith(error.name + "."):
            raise AdafedError(f"{key} = {spec!r}: there is no module {module_name!r} to import.") from error
        raise AdafedError(f"{key} = {spec!r}: {module_name} imports {error.name!r}, which is missing.") from error
    except Exception as error:
        raise AdafedError(f"{key} = {spec!r}: importing {module_name} raised {error!r}.") from error
    for name in path.split("."):
        if not hasattr(found, name):
            raise AdafedError(f"{key} = {spec!r}: {module_name} has no attribute {path!r}.")
        found = getattr(found, name)
    return found


def from_function(
    spec: str,
    options: Mapping[str, Any] | None = None,
    *,
    classes: int | None = None,
    validation: float = 0.1,
    test: float = 0.1,
    seed: int = 0,
    normalisation: Normalisation | None = None,
) -> Dataset | ArraysFederation:
    """Data from the user's function, called with `options`.

    It returns either (x, y), a data set that is still to be partitioned, or a dictionary from client id to
    (x, y) or to the arrays of a client's npz file (`x`, `y` and optionally `x_validation`, ..., `y_test`).
    """
    function = attribute(spec, "data.function")
    if not callable(function):
        raise AdafedError(f"data.function = {spec!r} is not a function.")
    made = function(**(options or {}))
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
            f"data.function = {spec!r} returned {type(made).__name__}; "
            "it must return (x, y) or a dictionary from client id to arrays."
        )
    x, y = checked_arrays(f"data.function = {spec!r}", "", made[0], made[1], classes)
    count = int(y.max(initial=0)) + 1 if classes is None else classes
    return Dataset(spec, x, y, count, normalisation or Normalisation(), sha256(x, y))
