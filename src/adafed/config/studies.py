"""A study: one experiment, several methods, several seeds. The same TOML file as an experiment, with more sections.

[methods.Ditto]            what this method changes of the experiment, section by section
rule = "fedavg"
ditto = { lambda = 0.1 }

[profiles.laptop]          a named set of changes, chosen with --profile; a method that is new here is added
rounds = 50

[profiles.tuned]           a profile may begin from another, and keep some `rows`
from = "laptop"
methods.Ditto.ditto = { lambda = 1.0 }

[variants.e10]             another experiment on the same ground: its changes, and `rows`, the methods it keeps
local = { epochs = 10 }    (or a [methods] table of its own); a profile's [variants.e10] is added last
rows = ["FedAvg", "AdaFed"]

[study]                    title, seeds, the columns of its table, `paper`: the printed row a method is set beside
seeds = [0, 1, 2, 3, 4]

[study.cost.laptop]        for the estimate of its cost: training samples of a round, milliseconds for each
samples = 4000
milliseconds = 0.05
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from adafed.config.configuration import Config, config_from, is_folder_name
from adafed.config.experiments import path as experiment_path
from adafed.config.loading import STUDY_SECTIONS, read_toml
from adafed.config.merging import merged, parse_settings
from adafed.errors import AdafedError, quoted
from adafed.metrics import USUAL, metric

STUDY_KEYS = ("title", "table", "seeds", "columns", "notes", "paper", "cost")


@dataclass(frozen=True)
class Study:
    """`base` is the experiment that every method changes."""

    name: str
    base: dict[str, Any]
    methods: dict[str, dict[str, Any]]
    profiles: dict[str, dict[str, Any]]
    title: str = ""
    table: str | None = None
    seeds: tuple[int, ...] = (0,)
    columns: tuple[str, ...] = USUAL
    notes: tuple[str, ...] = field(default=())
    paper: dict[str, str] = field(default_factory=dict)
    cost: dict[str, dict[str, float]] = field(default_factory=dict)
    variants: tuple[str, ...] = field(default=())

    def config(self, method: str | None = None, seed: int | None = None, settings: Iterable[str] = ()) -> Config:
        """One run's configuration; `settings` have the last word."""
        content = self.base
        if method is not None:
            if method not in self.methods:
                raise AdafedError(f"{self.name} has no method {method!r}; it has {quoted(self.methods)}")
            content = merged(content, self.methods[method])
        changes = parse_settings(settings)
        if seed is not None:
            if "seed" in changes:
                raise AdafedError(f"--set seed={changes['seed']} is at odds with seed {seed}; give one of them")
            content = merged(content, {"seed": seed})
        return config_from(merged(content, changes))

    def with_methods(self, methods: Mapping[str, dict[str, Any]]) -> Study:
        return Study(**{**vars(self), "methods": dict(methods)})


def load_study(path: str | Path, profile: str | None = None, variant: str | None = None) -> Study:
    """Read a study, or a plain experiment as a study without methods of its own: a file, or a packaged one by name."""
    file = experiment_path(path)
    content = read_toml(path, file)
    named = content.get("name")
    return study_from(
        content, named if isinstance(named, str) and is_folder_name(named) else file.stem, profile, variant
    )


def study_from(content: Mapping[str, Any], name: str, profile: str | None = None, variant: str | None = None) -> Study:
    base = dict(content)
    methods, profiles, variants, study = (_tables(base.pop(key, {}), key) for key in STUDY_SECTIONS)
    told = name if variant is None else f"{name}-{variant}"
    known = set(methods)
    for change in _changes(name, profiles, variants, profile, variant):
        # Nothing of [study] is an experiment's; what a change has of it takes its place.
        study = study | {key: change.pop(key) for key in STUDY_KEYS if key in change}
        rows, replaced = change.pop("rows", None), change.pop("replaced", None)
        over = _tables(change.pop("methods", {}), "methods")
        known |= set(over) if replaced else set()
        methods = over if replaced else _overlaid(methods, over, known)
        if rows is not None:
            methods = {method: methods[method] for method in _listed(name, rows, methods)}
        base = merged(base, change)
    for key in study:
        if key not in STUDY_KEYS:
            raise AdafedError(f"study.{key} is unknown; [study] has {', '.join(STUDY_KEYS)}")
    seeds = study.get("seeds", [base.get("seed", 0)])
    if "seeds" in study and not _are_seeds(seeds):
        raise AdafedError(
            f"study.seeds = {seeds!r}; it must be a list of different whole numbers of at least 0, as in [0, 1, 2]"
        )
    for method, over in methods.items():
        if isinstance(over, dict) and "seed" in over:
            raise AdafedError(f"methods.{method}.seed = {over['seed']!r}: all methods have the seeds of the study")
    columns = _texts(study.get("columns", list(USUAL)), "study.columns", "measures, as in ['mean', 'worst_10']")
    for key in columns:
        metric(key, "study.columns")
    base.setdefault("name", told)
    result = Study(
        name=told,
        base=base,
        methods={method: dict(_tables(over, f"methods.{method}")) for method, over in methods.items()},
        profiles=profiles,
        title=str(study.get("title", "")),
        table=study.get("table"),
        seeds=tuple(seeds) if _are_seeds(seeds) else (0,),  # a wrong `seed` is told below, by its own name
        columns=tuple(columns),
        notes=tuple(_texts(study.get("notes", []), "study.notes", "sentences")),
        paper=dict(_tables(study.get("paper", {}), "study.paper")),
        cost=dict(_tables(study.get("cost", {}), "study.cost")),
        variants=tuple(variants),
    )
    result.config()  # every mistake is told before anything runs
    for method in result.methods:
        try:
            result.config(method)
        except AdafedError as error:
            raise AdafedError(f"methods.{method}: {error}") from None
    return result


def _are_seeds(seeds: Any) -> bool:
    whole = isinstance(seeds, list) and bool(seeds) and all(type(s) is int and s >= 0 for s in seeds)
    return whole and len(set(seeds)) == len(seeds)


def _texts(value: Any, key: str, what: str) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise AdafedError(f"{key} = {value!r}; it must be a list of {what}")
    return value


def _changes(
    name: str, profiles: dict[str, Any], variants: dict[str, Any], profile: str | None, variant: str | None
) -> list[dict[str, Any]]:
    """What is laid over the experiment, in order: the variant, the profile, the profile's own word on the variant."""
    found = []
    own = None
    if variant is not None:
        chosen = dict(_known(name, "variant", variant, variants))
        # A variant names the methods it keeps, or has a table of its own, which a profile may change but not extend.
        own = _tables(chosen["methods"], "methods") if "methods" in chosen else None
        found.append(chosen | ({} if own is None else {"replaced": True}))
    for one in lineage(name, profile, profiles):
        chosen = {key: value for key, value in profiles[one].items() if key != "from"}
        within = _tables(chosen.pop("variants", {}), f"profiles.{one}.variants")
        if variant is not None:
            chosen.pop("rows", None)  # those of the experiment itself; a variant has named its own
        if own is not None:
            there = _tables(chosen.get("methods", {}), f"profiles.{one}.methods")
            chosen["methods"] = {method: over for method, over in there.items() if method in own}
        found.append(chosen)
        if variant is not None and variant in within:
            found.append(dict(_tables(within[variant], f"profiles.{one}.variants.{variant}")))
    return found


def lineage(name: str, profile: str | None, profiles: Mapping[str, Any]) -> list[str]:
    """The profile and those it begins from, the first of them first."""
    line: list[str] = []
    while profile is not None:
        before = _known(name, "profile", profile, profiles).get("from")
        if profile in line or not isinstance(before, str | None):
            raise AdafedError(f"profiles.{profile}.from = {before!r}; it must name another profile, without a circle")
        line.insert(0, profile)
        profile = before
    return line


def _overlaid(methods: Mapping[str, Any], over: Mapping[str, Any], known: set[str]) -> dict[str, Any]:
    """Changed methods and new ones, which have to say their rule. What a variant left out stays so."""
    new = {method: _tables(change, f"methods.{method}") for method, change in over.items() if method not in known}
    for method, change in new.items():
        if "rule" not in change:
            raise AdafedError(f"methods.{method} is new and has no rule; the methods are {quoted(methods)}")
    changed = {m: merged(_tables(o, m), _tables(over.get(m, {}), m)) for m, o in methods.items()}
    return changed | new


def _known(name: str, what: str, chosen: str, there: Mapping[str, Any]) -> dict[str, Any]:
    if chosen not in there:
        raise AdafedError(f"{name} has no {what} {chosen!r}; it has {quoted(there)}")
    return _tables(there[chosen], f"{what}s.{chosen}")


def _listed(name: str, rows: Any, methods: Mapping[str, Any]) -> list[str]:
    strange = [row for row in rows if row not in methods] if isinstance(rows, list) else [rows]
    if strange:
        raise AdafedError(f"{name}: rows names {strange[0]!r}; the methods are {quoted(methods)}")
    return list(rows)


def _tables(value: Any, key: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise AdafedError(f"{key} = {value!r}; it must be a table")
    return value
