"""What there is to choose from, as rows for `adafed list`: read from the registries, so nothing can be missing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from adafed.attacks import LIES
from adafed.client_rules import CLIENT_RULES
from adafed.config import experiments
from adafed.config.studies import load_study
from adafed.data import partition, sources
from adafed.metrics import METRICS
from adafed.models import MODELS
from adafed.registry import REQUIRED, Registry
from adafed.server.optimizers import OPTIMIZERS
from adafed.server.schedules import SCHEDULES
from adafed.server_rules import RULES
from adafed.server_rules.guards import GUARDS

Listing = tuple[tuple[str, ...], list[tuple[str, ...]]]


def _registered(registry: Registry[Any]) -> Listing:
    rows: list[tuple[str, ...]] = []
    for name in registry.names():
        entry: Any = registry.entry(name)
        rows.append((name, entry.summary, _options(registry, name)))
    return ("name", "what it does", "options and defaults"), rows


def _options(registry: Registry[Any], name: str) -> str:
    """The options with their defaults; one without a default as its key alone."""
    found = registry.options(name).values()
    return ", ".join(o.key if o.default is REQUIRED else f"{o.key}={o.default!r}" for o in found) or "none"


def _published(registry: Registry[Any]) -> Listing:
    """With who published each."""
    heads, rows = _registered(registry)
    return (*heads, "source"), [(*row, registry.entry(row[0]).source) for row in rows]


def _rules() -> Listing:
    heads, rows = _published(RULES)
    needs = [", ".join(sorted(RULES.make(row[0]).needs)) or "nothing" for row in rows]
    return (*heads, "needs"), [(*row, need) for row, need in zip(rows, needs, strict=True)]


def _data() -> Listing:
    return ("name", "available"), [(name, _presence(name)) for name in sources.names()]


def _presence(name: str) -> str:
    from adafed.data import catalogue

    if name not in catalogue.names():
        return "always"
    return "yes" if catalogue.available(name) else "not here; a run with it says where to get it"


def _partitions() -> Listing:
    """What each does is the first sentence of its function."""
    kinds = partition.PARTITIONS
    rows: list[tuple[str, ...]] = [
        (name, _first(kinds.entry(name).__doc__ or ""), _options(kinds, name)) for name in kinds.names()
    ]
    return ("name", "what it does", "options and defaults"), rows


def _first(text: str) -> str:
    """The first paragraph of a docstring, on one line."""
    return " ".join(text.split("\n\n")[0].split())


def _models() -> Listing:
    return ("name", "options and defaults"), [(name, _options(MODELS, name)) for name in MODELS.names()]


def _metrics() -> Listing:
    direction = {1: "larger is better", -1: "smaller is better", 0: ""}
    return ("name", "column", ""), [(key, m.label, direction[m.direction]) for key, m in METRICS.items()]


def _experiments() -> Listing:
    studies = [load_study(experiments.packaged(name)) for name in experiments.names()]
    rows: list[tuple[str, ...]] = [
        (s.name, s.title, s.config().data.name, ", ".join(s.methods), ", ".join(s.profiles)) for s in studies
    ]
    return ("name", "title", "data", "methods", "profiles"), rows


SUBJECTS: dict[str, Callable[[], Listing]] = {
    "rules": _rules,
    "client-rules": lambda: _published(CLIENT_RULES),
    "guards": lambda: _registered(GUARDS),
    "lies": lambda: _registered(LIES),
    "optimizers": lambda: _registered(OPTIMIZERS),
    "schedules": lambda: _registered(SCHEDULES),
    "data": _data,
    "partitions": _partitions,
    "models": _models,
    "metrics": _metrics,
    "experiments": _experiments,
}
