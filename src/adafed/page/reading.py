"""One run directory, read into the model. What is missing in it is left open; what is damaged is told in a sentence."""

from __future__ import annotations

import json
import re
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from adafed.config.loading import load_kept
from adafed.errors import AdafedError
from adafed.metrics import CLIENT, METRICS, Evaluated, is_own, value
from adafed.page.model import QUANTILES, Clients, Event, Rounds, Run
from adafed.runs.columns import Columns, Measured
from adafed.runs.directory import LABELS
from adafed.server_rules.base import client_key

SERIES = ("rho", "mean_decrease", "norm", "mean_norm", "condition", "negative")
NUMBER = re.compile(r"(?<!\S)[-+]?\d[\d.]*(?:e[-+]?\d+)?(?=[,;:]?(?:\s|$))")
NOTED = ("bounded", "warned", "not_evaluated")  # notes by client: what guards did and saw, who was not there to measure
IN_WORDS = ("fallback", "hidden")  # why a rule did not what it usually does; why remembered updates were not shown


def is_run(folder: Path) -> bool:
    """Whether a run was begun there."""
    return (folder / "config.toml").exists() and ((folder / "rounds.sqlite").exists() or (folder / "run.json").exists())


def read_run(folder: Path, method: str | None = None, columns: Sequence[str] = ()) -> Run:
    """A run that has begun; without evaluations where it has none yet."""
    try:
        text = (folder / "config.toml").read_text(encoding="utf-8")
        content = tomllib.loads(text)
    except OSError as error:
        raise AdafedError(f"{folder}/config.toml cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise AdafedError(f"{folder}/config.toml is damaged: it is not TOML in UTF-8") from None
    label, personalised, warnings = _named(folder, content)
    facts = _facts(folder)
    data = facts.get("data")
    checksum = data.get("checksum") if isinstance(data, dict) else None
    rule = content.get("rule")
    run = Run(
        method=method or label,
        seed=content["seed"] if isinstance(content.get("seed"), int) else 0,
        done=0,
        asked=content["rounds"] if isinstance(content.get("rounds"), int) else 0,
        personalised=personalised,
        at=(),
        evaluations={},
        source=str(folder),
        baseline=isinstance(rule, dict) and rule.get("name") == "fedavg",
        checksum=checksum if isinstance(checksum, str) else None,
        config=content,
        toml=text,
        facts=facts,
        warnings=warnings,
    )
    if not (folder / "rounds.sqlite").exists():
        return run
    store = Columns(folder / "rounds.sqlite")
    try:
        return _with_rows(run, store, _labels(folder), columns)
    except (ValueError, TypeError, KeyError, AttributeError, ArithmeticError, RecursionError) as error:
        if isinstance(error, AdafedError):
            raise
        raise AdafedError(f"{store.path} is damaged: a row holds what no run writes") from None
    finally:
        store.close()


def _with_rows(run: Run, store: Columns, labels: Mapping[str, Any] | None, columns: Sequence[str]) -> Run:
    rows = store.rounds()
    measured = list(store.measured())
    rho = {row["round"]: row["rho"] for row in rows}
    found = [_measures(one, rho.get(one.round), columns) for one in measured]
    keys = tuple(dict.fromkeys(key for one in found for key in one))
    happened = _happened(rows, store.dropped())
    clients = _clients(measured, store, labels, happened) if measured else None
    return replace(
        run,
        done=rows[-1]["round"] if rows else 0,
        personalised=any(one.personal for one in measured) or run.personalised,
        at=tuple(one.round for one in measured),
        evaluations={key: tuple(one.get(key) for one in found) for key in keys},
        clients=clients,
        rounds=_rounds(rows, store) if rows else None,
        events=_events(happened),
        warnings=(*run.warnings, *_told(rows)),
    )


def _named(folder: Path, content: Mapping[str, Any]) -> tuple[str, bool, tuple[str, ...]]:
    """How the method is called, whether clients have models of their own, and what stood in the way of knowing."""
    try:
        config = load_kept(folder)
    except AdafedError as error:  # a part of the user's own that is not here: the rows can be read all the same
        rule = content.get("rule")
        name = rule.get("name") if isinstance(rule, dict) else rule
        return str(name or folder.name), False, (f"its configuration cannot be checked here: {error}",)
    return config.label, config.personalised, ()


def _facts(folder: Path) -> dict[str, Any]:
    """run.json, or nothing: a page needs none of it."""
    try:
        found = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _labels(folder: Path) -> dict[str, Any] | None:
    """Training samples of each label, by client; runs made before have none."""
    try:
        found = json.loads((folder / LABELS).read_text(encoding="utf-8"))
        labels = found["labels"]
        whole = isinstance(labels, dict) and all(
            isinstance(one, dict) and all(type(count) is int and 0 <= count < 2**53 for count in one.values())
            for one in labels.values()
        )
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return labels if whole else None


def _measures(one: Measured, rho: float | None, columns: Sequence[str]) -> dict[str, float | None]:
    """All measures of the table, and the user's own among `columns`."""
    there = np.flatnonzero(~np.isnan(one.accuracies))
    if not len(there):
        return {}
    losses = one.losses[there]
    evaluated = Evaluated.of(
        one.accuracies[there], one.samples[there], losses if bool(np.isfinite(losses).all()) else None
    )
    evaluated = replace(evaluated, clients=tuple(one.clients[k] for k in there), rho=rho)
    own = [key for key in columns if is_own(key) or key.startswith(CLIENT)]
    return {key: value(key, evaluated) for key in (*METRICS, *own)}


def _clients(
    measured: Sequence[Measured], store: Columns, labels: Mapping[str, Any] | None, happened: Sequence[Happened]
) -> Clients:
    ids = tuple(sorted({client for one in measured for client in one.clients}, key=client_key))
    place = {client: k for k, client in enumerate(ids)}
    accuracies = np.full((len(measured), len(ids)), np.nan)
    for row, one in zip(accuracies, measured, strict=True):
        row[[place[client] for client in one.clients]] = 100.0 * one.accuracies
    last = measured[-1]
    here = [place[client] for client in last.clients]
    loss, samples = np.full(len(ids), np.nan), np.zeros(len(ids), dtype=np.int64)
    loss[here], samples[here] = last.losses, last.samples
    drawn, dropped = np.zeros(len(ids), dtype=np.int64), np.zeros(len(ids), dtype=np.int64)
    coefficient, trained = np.full(len(ids), np.nan), np.full(len(ids), np.nan)
    for tally in store.tallies():
        if (k := place.get(tally.client)) is not None:
            drawn[k], dropped[k] = tally.drawn, tally.dropped
            coefficient[k] = np.nan if tally.coefficient is None else tally.coefficient
            trained[k] = np.nan if tally.samples is None else tally.samples
    reasons: dict[int, Counter[str]] = {}
    for what, why, _, client in happened:
        if client in place:
            reasons.setdefault(place[client], Counter())[f"{what}: {why}"] += 1
    held = None
    if labels is not None:
        held = {
            place[client]: {str(label): int(count) for label, count in counts.items()}
            for client, counts in labels.items()
            if client in place
        }
        for k, counts in held.items():
            trained[k] = sum(counts.values())
    return Clients(ids, accuracies, loss, samples, trained, drawn, coefficient, dropped, reasons, held)


def _rounds(rows: Sequence[Mapping[str, Any]], store: Columns) -> Rounds:
    series = {
        key: np.array([np.nan if row[key] is None else row[key] for row in rows], dtype=np.float64) for key in SERIES
    }
    coefficients = np.full((len(rows), len(QUANTILES)), np.nan)
    for line, row in zip(coefficients, rows, strict=True):
        found = store.coefficients(row["round"])
        found = found[np.isfinite(found)]
        if len(found):
            line[:] = np.quantile(found, QUANTILES)
    return Rounds(np.array([row["round"] for row in rows], dtype=np.int64), series, coefficients)


Happened = tuple[str, str, int, str]  # what, why, the round, the client


def _happened(rows: Sequence[Mapping[str, Any]], dropped: Sequence[tuple[int, str, str]]) -> list[Happened]:
    """Who was dropped, bounded or warned of, and rounds that changed nothing."""
    found = [("dropped", _without_numbers(why), number, client) for number, client, why in dropped]
    for row in rows:
        notes = row["notes"] if isinstance(row["notes"], dict) else {}
        for what in NOTED:
            told = notes.get(what)
            for client, why in told.items() if isinstance(told, dict) else ():
                found.append((what, _without_numbers(str(why)), row["round"], str(client)))
        words = [(what, notes.get(what)) for what in IN_WORDS]
        found += [(what, _without_numbers(why), row["round"], "") for what, why in words if isinstance(why, str)]
        if row["skipped"]:
            found.append(("skipped", _without_numbers(str(row["skipped"])), row["round"], ""))
    return found


def _events(happened: Sequence[Happened]) -> tuple[Event, ...]:
    """By reason, the commonest first."""
    grouped: dict[tuple[str, str], list[tuple[int, str]]] = {}
    for what, why, number, client in happened:
        grouped.setdefault((what, why), []).append((number, client))
    events = []
    for (what, why), times in grouped.items():
        rounds = tuple(sorted({number for number, _ in times}))
        events.append(Event(what, why, len(times), rounds, len({client for _, client in times if client})))
    return tuple(sorted(events, key=lambda event: (event.what, -event.times, event.why)))


def _without_numbers(why: str) -> str:
    """`length 3.1e-12, median 0.4` and its like are one reason, whatever the numbers."""
    return NUMBER.sub("…", why)


def _told(rows: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """What a round's notes say in words under `warning` or `warnings`: guards and detectors write there."""
    found: dict[str, int] = {}
    for row in rows:
        notes = row["notes"] if isinstance(row["notes"], dict) else {}
        for key in ("warning", "warnings"):
            said = notes.get(key, ())
            for one in [said] if isinstance(said, str) else said if isinstance(said, list) else ():
                found.setdefault(str(one), row["round"])
    return tuple(f"round {number}: {one}" for one, number in found.items())
