"""Which run a directory holds: what `run.json` says of it, and whether a configuration is that of the same run."""

from __future__ import annotations

import hashlib
import json
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

from adafed.config.configuration import Config
from adafed.errors import AdafedError
from adafed.files import parsed

FORMAT = 1  # of the directory: what lies where. The tables have a version of their own, in `schema.py`.
# Sections and keys that a resumed run may set anew. How the data came here does not count: their checksum does.
FREE_TO_CHANGE = ("run", "track", "rounds", "data.dir", "data.verify", "data.download")


def read_facts(described: Path) -> dict[str, Any]:
    try:
        facts: dict[str, Any] = parsed(described.read_bytes())
        whole = isinstance(facts["data"]["checksum"], str) and isinstance(facts["trained_together"], int)
        kind = facts.get("format", 1)  # the first runs had no number
        whole = whole and type(kind) is int and kind > 0
        whole = whole and isinstance(facts.get("fingerprint"), str | None)
    except (OSError, ValueError, KeyError, TypeError):
        whole = False
    if not whole:
        raise AdafedError(f"{described} is damaged, so the run cannot go on; choose another directory")
    if kind > FORMAT:
        raise AdafedError(f"{described} is of format {kind} and this adafed reads up to format {FORMAT}; update adafed")
    return facts


def begun_with(path: Path) -> str:
    """The engine of a run: local or flower."""
    engine = read_facts(path / "run.json").get("engine", "local")
    if engine not in ("local", "flower"):
        raise AdafedError(f"{path / 'run.json'} names the engine {engine!r}; this adafed has local and flower")
    return str(engine)


def require_same(path: Path, old: Config, new: Config) -> None:
    """Complain if two configurations are of different experiments; how long and where they run does not count."""
    different = _difference(old.completed().to_dict(), new.completed().to_dict())
    if different is not None:
        key, was, is_ = different
        raise AdafedError(
            f"{path} holds another experiment: {key} was {was!r} and is now {is_!r}; choose another directory"
        )


def _difference(old: Any, new: Any, key: str = "") -> tuple[str, Any, Any] | None:
    if key in FREE_TO_CHANGE:
        return None
    if isinstance(old, dict) and isinstance(new, dict):
        for name in sorted(old.keys() | new.keys()):
            found = _difference(old.get(name), new.get(name), f"{key}.{name}" if key else name)
            if found is not None:
                return found
        return None
    return None if old == new or repr(old) == repr(new) else (key, old, new)  # not a number is never equal


def fingerprint_of(config: Config, facts: dict[str, Any]) -> str:
    """Of all that a run's bits follow from: another seed's or another experiment's checkpoint is known by it."""
    what = [_fixed(config.completed().to_dict()), facts["seeds"], facts["data"]["checksum"]]
    return hashlib.sha256(json.dumps(what, sort_keys=True, default=str).encode()).hexdigest()


def _fixed(content: Any, key: str = "") -> Any:
    """A configuration without what a resumed run may set anew."""
    if not isinstance(content, dict):
        return content
    named = {name: f"{key}.{name}" if key else name for name in content}
    return {name: _fixed(one, named[name]) for name, one in content.items() if named[name] not in FREE_TO_CHANGE}


def versions() -> dict[str, str]:
    packages = ("adafed", "torch", "numpy", "scipy", "clarabel")
    found = {}
    for package in packages:
        try:
            found[package] = version(package)
        except ModuleNotFoundError:
            found[package] = "unknown"
    return found | {"python": platform.python_version(), "machine": platform.machine(), "system": platform.system()}
