"""The paper's tables and figures by name: which experiment each is, in which profile, with which rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from adafed import paper
from adafed.config.experiments import packaged
from adafed.config.merging import merged
from adafed.config.studies import Study, load_study
from adafed.data import catalogue
from adafed.errors import AdafedError, quoted
from adafed.report.figures import Source

SWEEP = "gamma"


@dataclass(frozen=True)
class Target:
    """A table of the paper and where it comes from."""

    name: str
    experiment: str
    variant: str | None = None
    sweep: bool = False

    @property
    def printed(self) -> paper.PrintedTable | None:
        return paper.table(self.name) if self.name in paper.tables() else None

    def study(self, profile: str | None) -> Study:
        study = load_study(packaged(self.experiment), profile, self.variant)
        return _swept(study, self.name) if self.sweep else study


def targets() -> dict[str, Target]:
    """In the order of the paper: its set-ups, more local epochs, the sweeps."""
    found = {}
    for name in paper.tables():
        setup = paper.table(name).setup_name
        if name == setup:
            found[name] = Target(name, setup)
        elif name.endswith(f"-{SWEEP}"):
            found[name] = Target(name, setup, sweep=True)
        else:
            found[name] = Target(name, setup, variant=name.removeprefix(f"{setup}-"))
    return found


def target(name: str, *, sweep: bool = False) -> Target:
    known = targets()
    wanted = f"{name}-{SWEEP}" if sweep and not name.endswith(f"-{SWEEP}") else name
    if wanted not in known:
        raise AdafedError(f"{wanted!r} is no table or figure of the paper; adafed reproduce --list shows them all")
    return known[wanted]


def _swept(study: Study, name: str) -> Study:
    """Every AdaFed row once for each gamma of the paper's grid.

    A row that states no gamma stands for a default, and one that is called by its gamma for that one.
    """
    methods, beside = {}, {}
    for method, over in study.methods.items():
        rule = study.config(method).rule
        if rule.name == "adafed" and "gamma" in rule.options and ", gamma " not in method:
            for gamma in paper.grid("AdaFed")["gamma"]:
                row = f"{method}, gamma={gamma:g}"
                methods[row] = merged(over, {"rule": {"gamma": gamma}})
                beside[row] = f"gamma={gamma:g}"
    title = f"{study.title}, gamma"
    return Study(**{**vars(study), "name": name, "title": title, "methods": methods, "paper": beside})


def chosen(study: Study, methods: Sequence[str] | None) -> Study:
    """Only these rows. A name that several rows begin with (AdaFed) means all of them unless it is one itself."""
    if not methods:
        return study
    kept: list[str] = []
    for wanted in methods:
        found = [row for row in study.methods if row == wanted] or [
            row for row in study.methods if row.startswith(f"{wanted},")
        ]
        if not found:
            raise AdafedError(f"--method is {wanted!r}; {study.name} has {quoted(study.methods)}")
        kept += found
    return study.with_methods({row: study.methods[row] for row in study.methods if row in kept})


def source_study(source: Source, profile: str | None) -> Study:
    """The study a figure's panel is drawn from; the paper's own length is for the paper's profile alone."""
    variant = source.paper if source.paper and profile == "paper" else source.variant
    study = load_study(packaged(source.experiment), source.profile or profile, variant)
    return chosen(study, source.methods)


def here(study: Study, settings: Sequence[str] = ()) -> bool:
    data = study.config(settings=[one for one in settings if one.startswith("data.")]).data
    return data.name not in catalogue.names() or catalogue.available(data.name, data.options.get("dir"))
