"""The experiments that come with the package, by name: `demo`, and the set-ups of the paper's tables and figures."""

from __future__ import annotations

import os
from difflib import get_close_matches
from importlib.resources import files
from pathlib import Path

from adafed.errors import AdafedError


def names() -> tuple[str, ...]:
    return tuple(sorted(file.stem for file in _folder().glob("*.toml")))


def packaged(name: str) -> Path:
    """The file of a packaged experiment, whatever is called so in the current directory."""
    if name not in names():
        raise AdafedError(f"no packaged experiment is called {name!r}; {_there(name)}")
    return _folder() / f"{name}.toml"


def path(experiment: str | Path) -> Path:
    """A file that is there, or else the packaged experiment of that name. A folder is no experiment."""
    given = str(experiment)
    if os.path.exists(given) and not os.path.isdir(given):
        return Path(given)
    if given in names():
        return packaged(given)
    if Path(given).name != given or os.path.isdir(given):
        return Path(given)  # meant as a path; whoever reads it says what is wrong with it
    raise AdafedError(f"{given} cannot be read: no file and no packaged experiment is called so; {_there(given)}")


def _there(name: str) -> str:
    near = get_close_matches(Path(name).stem, names(), n=1)
    return f"there are {', '.join(names())}" + (f"; did you mean {near[0]}?" if near else "")


def _folder() -> Path:
    return Path(str(files("adafed"))) / "experiments"
