"""The numbers the AdaFed paper prints, as data: every table, the set-ups, the grids searched and the best values found.

`adafed.json` holds them as printed, digits and all. Some of them cannot be true together; the file flags those, and
`audit` computes the flags anew from the numbers, so that a reader need take neither on trust.
"""

from __future__ import annotations

import functools
import importlib.resources
import json
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from types import MappingProxyType
from typing import Any

from adafed.errors import AdafedError


@dataclass(frozen=True)
class Number:
    """A printed number. If it is not `trusted`, `reason` says which other printed numbers contradict it."""

    value: float
    trusted: bool
    reason: str | None = None


@dataclass(frozen=True)
class PrintedTable:
    """One set-up's part of a printed table. `label` is the paper's own label of the table it is from.

    `setup` has what the paper says of the experiment, None where it says nothing. `tail` is the share of clients that
    the worst and best columns average over. A table `<setup>-gamma` varies AdaFed's gamma; its rows are "gamma=5" etc.
    """

    name: str
    label: str
    setup_name: str
    setup: Mapping[str, Any]
    columns: tuple[str, ...]
    rows: Mapping[str, Mapping[str, Decimal]]  # method -> metric -> the number with the digits it was printed with
    flags: Mapping[str, Mapping[str, str]]  # method -> metric -> why it cannot be relied on
    marks: Mapping[
        str, Mapping[str, str]
    ]  # method -> metric -> "bold", said to be the best, or "underlined", the second

    @property
    def methods(self) -> tuple[str, ...]:
        return tuple(self.rows)

    def number(self, method: str, metric: str) -> Number:
        row = _pick(self.rows, method, f"method of table {self.name}")
        printed = _pick(row, metric, f"metric of table {self.name}")
        reason = self.flags.get(method, {}).get(metric)
        return Number(float(printed), reason is None, reason)


def tables() -> tuple[str, ...]:
    """The names of all tables, in the order of the paper's main part and then its appendix."""
    return tuple(_tables())


def table(name: str) -> PrintedTable:
    found: PrintedTable = _pick(_tables(), name, "table")
    return found


def value(table_name: str, method: str, metric: str) -> Number:
    return table(table_name).number(method, metric)


def setups() -> tuple[str, ...]:
    return tuple(_document()["setups"])


def grid(method: str) -> dict[str, tuple[float, ...]]:
    """The values of each hyper-parameter that the paper searched; FedAvg has none."""
    if method == "FedAvg":
        return {}
    found = _pick(_document()["grids"], method, "method")
    return {key: tuple(float(value) for value in values) for key, values in found.items()}


def grids() -> tuple[str, ...]:
    """The methods for which `grid` has an answer."""
    return ("FedAvg", *_document()["grids"])


def best(setup: str, method: str) -> dict[str, float] | None:
    """The hyper-parameters the paper calls best for a set-up or table, or None where it does not say."""
    name = _tables()[setup].setup_name if setup in _tables() else setup
    found = _pick(_document()["best"], name, "set-up").get(method)
    if found is None:
        return {} if method == "FedAvg" else None
    return {key: float(value) for key, value in found.items()}


@functools.cache
def _document() -> dict[str, Any]:
    text = importlib.resources.files("adafed.paper").joinpath("adafed.json").read_text(encoding="utf-8")
    document: dict[str, Any] = json.loads(text, parse_float=Decimal)
    return document


@functools.cache
def _tables() -> Mapping[str, PrintedTable]:
    document = _document()
    found = {}
    for entry in document["tables"]:
        name = entry["table"]
        facts = {
            key: float(item) if isinstance(item, Decimal) else item
            for key, item in (document["setups"][entry["setup"]] | entry["changes"]).items()
        }
        found[name] = PrintedTable(
            name=name,
            label=entry["label"],
            setup_name=entry["setup"],
            setup=MappingProxyType(facts),
            columns=tuple(entry["columns"]),
            rows={
                method: {metric: Decimal(number) for metric, number in row.items()}
                for method, row in entry["rows"].items()
            },
            flags=document["flags"].get(name, {}),
            marks=document["marks"].get(name, {}),
        )
    return MappingProxyType(found)


def _pick(choices: Mapping[str, Any], key: str, what: str) -> Any:
    if key not in choices:
        raise AdafedError(f"{key!r} is no {what} in the paper; take one of {', '.join(choices)}.")
    return choices[key]
