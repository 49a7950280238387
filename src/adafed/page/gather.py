"""Run directories, folders of studies and kept results files, gathered into one report.

A study's folder holds run directories as METHOD/seed-N. `study.json` beside them, which `adafed compare` writes, says
how the study and its methods are called; without it they are called as their folders.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from adafed.errors import AdafedError, quoted
from adafed.files import alone, write_whole
from adafed.page.model import COLUMNS, Report, Run, flat
from adafed.page.reading import is_run, read_run
from adafed.studies.kept import KeptRun, load

STUDY = "study.json"
DEPTH = 3  # folders below the one that is named


@dataclass(frozen=True)
class Named:
    """A run directory and how its method is called; None: as its configuration or its folder says."""

    directory: Path
    method: str | None = None


def gathered(
    paths: Sequence[Path | Named],
    *,
    title: str | None = None,
    tail: bool = False,
    against: str | None = None,
    columns: Sequence[str] | None = None,
    notes: Sequence[str] = (),
) -> Report:
    """Everything that the paths lead to. A run that cannot be read is left out and told of, unless none can."""
    runs: list[Run] = []
    left_out: list[str] = []
    titles: list[str] = []
    keys, said = tuple(columns or COLUMNS), list(notes)
    for path in paths:
        found, called = _found(path, keys, left_out, said)
        runs += found
        titles += [called] if called else []
    if not runs:
        raise AdafedError(left_out[0] if left_out else f"{paths[0]} holds no run")
    runs = _distinct(runs)
    report = Report(
        title or ", ".join(dict.fromkeys(titles)) or _title(runs), tuple(runs), keys, tail, against, tuple(said),
        tuple(left_out),
    )  # fmt: skip
    if against is not None and against not in report.methods:
        there = quoted(report.methods) if report.methods else "none with an evaluation yet"
        raise AdafedError(f"--against is {against!r}; there are {there}")
    return report


def describe_study(folder: Path, title: str, methods: Mapping[str, str], notes: Sequence[str]) -> None:
    """How a study is called, and its methods by their folders, for a page made later."""
    with alone(folder / f".{STUDY}.lock"):
        before = _described(folder)[1]  # of methods that are not run this time
        content = {"format": 1, "title": title, "methods": dict(before) | dict(methods), "notes": list(notes)}
        write_whole(folder / STUDY, json.dumps(content, indent=1, ensure_ascii=False).encode())


def _found(
    path: Path | Named, keys: Sequence[str], left_out: list[str], notes: list[str]
) -> tuple[list[Run], str | None]:
    """The runs that one path leads to, and how they are called together."""
    if isinstance(path, Named):
        return _read([path], keys, left_out), None
    if path.is_file():
        kept = load(path)
        if not kept.runs:
            left_out.append(f"{path} holds no evaluations yet; train further and keep again")
        told = ", ".join(f"{key}: {value}" for key, value in kept.told.items())
        notes += [told] if told else []
        return [_from_kept(run, path) for run in kept.runs], kept.title
    if is_run(path):
        return _read([Named(path)], keys, left_out), None
    if not path.is_dir():
        raise AdafedError(f"{path} is not there; name a run directory, a study's folder or a kept results file")
    folders = _below(path)
    if not folders:
        raise AdafedError(
            f"{path} holds no run: a run directory has config.toml and rounds.sqlite, a study's folder some below it"
        )
    title, methods, remarks = _described(path)
    notes += remarks
    order = list(methods)
    folders.sort(key=lambda one: order.index(one.parent.name) if one.parent.name in methods else len(order))
    folders.sort(key=lambda one: _number(one.name))  # seed by seed, as they were run
    found = _read([Named(one, _method_of(one, path, methods)) for one in folders], keys, left_out)
    return _once(found, notes), title or path.name


def _read(named: Iterable[Named], keys: Sequence[str], left_out: list[str]) -> list[Run]:
    found = []
    for one in named:
        try:
            found.append(read_run(one.directory, one.method, keys))
        except AdafedError as error:
            left_out.append(str(error))
    return found


def _below(folder: Path) -> list[Path]:
    """Run directories up to three folders down, in the order of their names."""
    found: list[Path] = []
    level = [folder]
    for _ in range(DEPTH):
        level = sorted(one for parent in level for one in parent.iterdir() if one.is_dir() and one.name[0] != ".")
        found += [one for one in level if is_run(one)]
        level = [one for one in level if not is_run(one)]
    return sorted(found, key=lambda one: (one.parent, _number(one.name), one.name))


def _number(name: str) -> int:
    digits = name.rpartition("-")[2]
    return int(digits) if digits.isdecimal() else -1


def _described(folder: Path) -> tuple[str | None, dict[str, str], list[str]]:
    try:
        content: Any = json.loads((folder / STUDY).read_text(encoding="utf-8"))
        methods = {str(key): str(value) for key, value in content["methods"].items()}
        return str(content["title"]) or None, methods, [str(note) for note in content["notes"]]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None, {}, []


def _method_of(directory: Path, study: Path, methods: Mapping[str, str]) -> str | None:
    """By the folder that holds its seeds; a folder of single runs says nothing of their methods."""
    if not directory.name.startswith("seed-") or directory.parent == study:
        return None
    folder = directory.parent
    return methods.get(folder.name) or str(folder.relative_to(study))


def _from_kept(run: KeptRun, path: Path) -> Run:
    rule = run.settings.get("rule")
    plain = isinstance(rule, dict) and rule.get("name") == "fedavg"
    return Run(
        run.method, run.seed, run.rounds, run.rounds, run.personalised, run.at, run.evaluations, str(path),
        baseline=plain or run.method == "FedAvg",
    )  # fmt: skip


def _title(runs: Sequence[Run]) -> str:
    names = dict.fromkeys(str(run.config.get("name", "")) for run in runs if run.config)
    return ", ".join(name for name in names if name) or "adafed"


# Runs that share a name and are not of one method


def _once(runs: Sequence[Run], notes: list[str]) -> list[Run]:
    """A run that a folder holds twice, made by `run` and again by `compare`, say, counts once. Of those that are named
    one by one both are shown: who does that wants to compare them."""
    kept: list[Run] = []
    for run in runs:
        same = next((one for one in kept if _repeats(run, one)), None)
        if same is None:
            kept.append(run)
        else:
            notes.append(f"{run.source} repeats {same.source} and is left out")
    return kept


def _repeats(run: Run, other: Run) -> bool:
    return run.config is not None and (run.method, run.seed, run.config, run.at, run.evaluations) == (
        other.method,
        other.seed,
        other.config,
        other.at,
        other.evaluations,
    )


def _distinct(runs: Sequence[Run]) -> list[Run]:
    """Runs of one name are named by what differs in their configurations; those that repeat a seed, by their source."""
    named: dict[str, list[Run]] = {}
    for run in runs:
        named.setdefault(run.method, []).append(run)
    called = {id(run): run.method for run in runs}
    for method, alike in named.items():
        settings = [flat(run.config or {}) for run in alike]
        keys = sorted(
            {key for one in settings for key in one if any(one.get(key) != other.get(key) for other in settings)}
        )
        for run, one in zip(alike, settings, strict=True):
            told = [f"{key}={one.get(key)}" for key in keys[:3]]
            called[id(run)] = ", ".join([method, *told])
    seen: dict[tuple[str, int], int] = {}
    for run in runs:
        seen[called[id(run)], run.seed] = seen.get((called[id(run)], run.seed), 0) + 1
    for run in runs:
        if seen[called[id(run)], run.seed] > 1:
            called[id(run)] += f" ({run.source})"
    return [replace(run, method=called[id(run)]) for run in runs]
