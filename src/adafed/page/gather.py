"""Run directories, folders of studies and kept results files, gathered into one report.

A study's folder holds run directories as METHOD/seed-N. `study.json` beside them, which `adafed compare` writes, says
how the study and its methods are called; without it they are called as their folders.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
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
    keys, said, own = tuple(columns or COLUMNS), list(notes), set[str]()
    places = [_places(path) for path in paths]
    for path, left in zip(paths, _without_repeats(paths, places, said), strict=True):
        if left:
            found, called = _found(path, left, keys, left_out, said, own)
            runs += found
            titles += [called] if called else []
    if not runs:
        raise AdafedError(left_out[0] if left_out else f"{paths[0]} holds no run")
    runs = _distinct(runs, own)
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


def _places(path: Path | Named) -> list[Path]:
    """The run directories, or the one kept file, that a path leads to."""
    if isinstance(path, Named):
        return [path.directory]
    if path.is_file() or is_run(path):
        return [path]
    if not path.is_dir():
        raise AdafedError(f"{path} is not there; name a run directory, a study's folder or a kept results file")
    folders = _below(path)
    if not folders:
        raise AdafedError(
            f"{path} holds no run: a run directory has config.toml and rounds.sqlite, a study's folder some below it"
        )
    return folders


def _without_repeats(
    paths: Sequence[Path | Named], places: Sequence[Sequence[Path]], notes: list[str]
) -> list[list[Path]]:
    """What is named twice, however it is spelled, counts once: as a part of the outermost folder that holds it, which
    knows best how it is called."""
    there = [path.directory if isinstance(path, Named) else path for path in paths]
    first: dict[Path, int] = {}
    kept: list[list[Path]] = [[] for _ in paths]
    for k in sorted(range(len(paths)), key=lambda k: len(there[k].resolve().parts)):
        for place in places[k]:
            if place.resolve() not in first:
                first[place.resolve()] = k
                kept[k].append(place)
    for k, path in enumerate(there):
        if kept[k]:
            repeats = [(place, first[place.resolve()]) for place in places[k] if first[place.resolve()] != k]
            notes += [f"{place} repeats what {there[other]} holds and is left out" for place, other in repeats]
        else:
            holders = dict.fromkeys(str(there[first[place.resolve()]]) for place in places[k])
            notes.append(f"{path} repeats {', '.join(holders)} and is left out")
    return kept


def _found(
    path: Path | Named,
    places: Sequence[Path],
    keys: Sequence[str],
    left_out: list[str],
    notes: list[str],
    own: set[str],
) -> tuple[list[Run], str | None]:
    """The runs at the places that one path leads to, and how they are called together. `own` gets the sources of those
    whose method a study names."""
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
    title, methods, remarks = _described(path)
    notes += remarks
    order = list(methods)
    named = [Named(one, _method_of(one, path, methods)) for one in places]
    named.sort(key=lambda one: order.index(_folder(one)) if _folder(one) in methods else len(order))
    named.sort(key=lambda one: _number(one.directory.name))  # seed by seed, as they were run
    ours = [one for one in named if _is_own(one, path, methods)]
    found = _read(ours, keys, left_out)
    own |= {run.source for run in found}
    strays = _read([one for one in named if one not in ours], keys, left_out)
    return _beside(found, _once([*found, *strays], notes), notes), title or path.name


def _is_own(run: Named, study: Path, methods: Mapping[str, str]) -> bool:
    """As the study says; where it does not, every METHOD/seed-N is."""
    if not methods:
        return run.method is not None
    return run.directory.parent.parent == study and _folder(run) in methods and run.directory.name.startswith("seed-")


def _folder(run: Named) -> str:
    return run.directory.parent.name


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
    own = methods.get(folder.name) if folder.parent == study else None
    return own or str(folder.relative_to(study))


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


def _beside(own: Sequence[Run], runs: Sequence[Run], notes: list[str]) -> list[Run]:
    """A study's methods have their own runs alone. What else lies in its folder is a row of its own, or left out where
    the study has that seed with those settings, whatever it is called: trained on for longer, say."""
    methods, sources = {run.method for run in own}, {run.source for run in own}
    kept = []
    for run in runs:
        if run.source in sources:
            kept.append(run)
            continue
        same = next((one for one in own if run.seed == one.seed and _same_settings(run, one)), None)
        if same is None:
            kept.append(replace(run, method=f"{run.method} ({run.source})") if run.method in methods else run)
        else:
            length = "" if run.done == same.done else f" with {run.done} rounds instead of {same.done}"
            notes.append(f"{run.source} repeats {same.source}{length} and is left out")
    return kept


def _same_settings(run: Run, other: Run) -> bool:
    return flat(run.config or {}) == flat(other.config or {})


def _distinct(runs: Sequence[Run], own: Collection[str] = ()) -> list[Run]:
    """Runs of one name are named by what differs in their configurations; those that repeat a seed, by their source.
    `own` are the sources of runs that a study names: they keep their name beside a run that was named alone."""
    named: dict[str, list[Run]] = {}
    for run in runs:
        named.setdefault(run.method, []).append(run)
    called = {id(run): run.method for run in runs}
    for method, alike in named.items():
        theirs = [run for run in alike if run.source in own]
        for run in alike:
            if theirs and run.source not in own and not all(_fits(run, one) for one in theirs):
                called[id(run)] = f"{method} ({run.source})"
        alike = [run for run in alike if called[id(run)] == method]
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


def _fits(run: Run, other: Run) -> bool:
    """As another seed of one method."""
    return _same_settings(run, other) and run.seed != other.seed
