"""People's own code, named `module:attribute` in a configuration."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Protocol

from adafed.errors import AdafedError


@contextmanager
def own_code(key: str, spec: str) -> Iterator[None]:
    """While code of the user's runs: what it raises, also its wish to end the program, is told with the place."""
    try:
        yield
    except AdafedError:
        raise
    except (Exception, SystemExit) as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{os.path.basename(last.filename)}, line {last.lineno}"
        raise AdafedError(f"{key} = {spec!r} raised {error!r} in {where}.") from error


def ours(part: object) -> bool:
    """Whether a rule, a guard or an optimiser is of this package; what the user's own do is not known."""
    return type(part).__module__.startswith("adafed.")


def maybe_own(key: str, part: Named) -> AbstractContextManager[None]:
    """While a part runs that may be the user's own."""
    return nullcontext() if ours(part) else own_code(key, part.name)


class Named(Protocol):
    """A rule, a guard."""

    @property
    def name(self) -> str: ...


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
    except (Exception, SystemExit) as error:  # a module may also end the program while it is imported
        raise AdafedError(f"{key} = {spec!r}: importing {module_name} raised {error!r}.") from error
    for name in path.split("."):
        if not hasattr(found, name):
            raise AdafedError(f"{key} = {spec!r}: {module_name} has no attribute {path!r}.")
        found = getattr(found, name)
    return found
