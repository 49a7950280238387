"""A study: one experiment, several methods, several seeds. The same TOML file as an experiment, with more sections.

[methods.Ditto]            what this method changes of the experiment, section by section
rule = "fedavg"
ditto = { lambda = 0.1 }

[profiles.laptop]          a named set of changes, chosen with --profile
rounds = 50

[study]                    title, seeds, the columns of its table
seeds = [0, 1, 2, 3, 4]
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from adafed.errors import AdafedError
from adafed.runs.config import Config, config_from, merged, parse_settings
from adafed.runs.summary import COLUMNS, USUAL

STUDY_KEYS = ("title", "table", "seeds", "columns", "notes")


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

    def config(self, method: str | None = None, seed: int | None = None, settings: Iterable[str] = ()) -> Config:
        """One run's configuration; `settings` have the last word."""
        content = self.base
        if method is not None:
            if method not in self.methods:
                known = ", ".join(self.methods) or "none"
                raise AdafedError(f"{self.name} has no method {method!r}; it has {known}")
            content = merged(content, self.methods[method])
        if seed is not None:
            content = merged(content, {"seed": seed})
        return config_from(merged(content, parse_settings(settings)))

    def with_methods(self, methods: Mapping[str, dict[str, Any]]) -> Study:
        return Study(**{**vars(self), "methods": dict(methods)})


def load_study(path: str | Path, profile: str | None = None) -> Study:
    """Read a study, or a plain experiment as a study without methods of its own."""
    file = Path(path)
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise AdafedError(f"{path} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise AdafedError(f"{path} is not TOML: {error}") from None
    return study_from(content, file.stem, profile)


def study_from(content: Mapping[str, Any], name: str, profile: str | None = None) -> Study:
    base = dict(content)
    methods, profiles, study = (_tables(base.pop(key, {}), key) for key in ("methods", "profiles", "study"))
    for key in study:
        if key not in STUDY_KEYS:
            raise AdafedError(f"study.{key} is unknown; [study] has {', '.join(STUDY_KEYS)}")
    seeds = study.get("seeds", [base.get("seed", 0)])
    if not isinstance(seeds, list) or not seeds or not all(type(s) is int and s >= 0 for s in seeds):
        raise AdafedError(f"study.seeds = {seeds!r}; it must be a list of whole numbers of at least 0, as in [0, 1, 2]")
    columns = study.get("columns", list(USUAL))
    for column in columns if isinstance(columns, list) else [columns]:
        if column not in COLUMNS:
            raise AdafedError(f"study.columns names {column!r}; there are {', '.join(COLUMNS)}")
    if profile is not None:
        if profile not in profiles:
            known = ", ".join(profiles) or "none"
            raise AdafedError(f"{name} has no profile {profile!r}; it has {known}")
        chosen = dict(_tables(profiles[profile], f"profiles.{profile}"))
        changed = _tables(chosen.pop("methods", {}), f"profiles.{profile}.methods")
        seeds = chosen.pop("seeds", seeds)
        base = merged(base, chosen)
        methods = {method: merged(over, changed.get(method, {})) for method, over in methods.items()}
    base.setdefault("name", name)
    result = Study(
        name=name,
        base=base,
        methods={method: dict(_tables(over, f"methods.{method}")) for method, over in methods.items()},
        profiles=profiles,
        title=str(study.get("title", "")),
        table=study.get("table"),
        seeds=tuple(seeds),
        columns=tuple(columns),
        notes=tuple(study.get("notes", ())),
    )
    result.config()  # every mistake is told before anything runs
    for method in result.methods:
        try:
            result.config(method)
        except AdafedError as error:
            raise AdafedError(f"methods.{method}: {error}") from None
    return result


def _tables(value: Any, key: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise AdafedError(f"{key} = {value!r}; it must be a table")
    return value
