"""The paper's tables by name: which experiment each is, what it costs, and our numbers beside the printed ones.

The experiments are the TOML files in `experiments/`. A table is one of them (`fashion`), one of its variants
(`cifar100-1-e10`) or its sweep over gamma (`fashion-gamma`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from adafed import paper
from adafed.compare import Run, planned
from adafed.data import catalogue
from adafed.data.federation import IndexedFederation
from adafed.errors import AdafedError
from adafed.executors.station import open_from
from adafed.report.figures import FIGURES, Figure, Panel, Source, figure
from adafed.report.tables import Cell, Row, Table, cells
from adafed.runs.config import Config, merged
from adafed.runs.summary import CLIENT, PERCENT, RunSummary, column, summarise
from adafed.server_rules import RULES
from adafed.study import Study, lineage, load_study

PROFILES = ("paper", "laptop")
CORES = 2
OVERHEAD = 1.6  # losses before training, rho and evaluation, in units of the training itself
CLEARLY = 1.1  # what a mean accuracy must be, in units of the commonest class's, to be called above it
SWEEP = "gamma"
WARNINGS = {
    "laptop": "; the order of the methods may compare with the paper's, the numbers do not",
    "smoke": "; it shows that everything runs and nothing else",
}
NO_CHANGE = ("from", "seeds", "methods", "variants", "notes")  # what in a profile is no change of the experiment
# How the grids of the paper are called here.
KEYS = {"lambda": "ditto.lambda", "eta_t": "rule.step"}


@dataclass(frozen=True)
class Target:
    """A table of the paper and where it comes from."""

    name: str
    experiment: str
    variant: str | None = None
    sweep: bool = False

    @property
    def printed(self) -> paper.Table | None:
        return paper.table(self.name) if self.name in paper.tables() else None

    def study(self, profile: str | None) -> Study:
        study = load_study(_folder() / f"{self.experiment}.toml", profile, self.variant)
        return _swept(study, self.name) if self.sweep else study


def _folder() -> Path:
    return Path(str(files("adafed"))) / "experiments"


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
    """Every AdaFed row once for each gamma of the paper's grid."""
    methods, beside = {}, {}
    for method, over in study.methods.items():
        if study.config(method).rule.name == "adafed":
            for gamma in paper.grid("AdaFed")["gamma"]:
                row = f"{method}, gamma={gamma:g}"
                methods[row] = merged(over, {"rule": {"gamma": gamma}})
                beside[row] = f"gamma={gamma:g}"
    title = f"{study.title}, gamma"
    return Study(**{**vars(study), "name": name, "title": title, "methods": methods, "paper": beside})


@dataclass(frozen=True)
class Request:
    """What the command line asks for. `out` holds a folder for each study and profile."""

    name: str
    profile: str = "laptop"
    methods: Sequence[str] | None = None
    seeds: Sequence[int] = ()
    rounds: int | None = None
    settings: Sequence[str] = ()
    out: Path | None = None
    sweep: bool = False
    download: bool = False
    verify: bool = True

    @property
    def root(self) -> Path:
        return self.out or Path("runs") / "reproduce"


@dataclass(frozen=True)
class Part:
    """One study to run, and the printed table it is set beside."""

    study: Study
    profile: str
    printed: paper.Table | None
    runs: list[Run]


@dataclass(frozen=True)
class Plan:
    """Everything to run for one table or figure."""

    parts: list[Part]
    root: Path
    figure: Figure | None = None
    notes: tuple[str, ...] = ()

    @property
    def runs(self) -> list[Run]:
        return [run for part in self.parts for run in part.runs]

    def tables(self) -> list[Table]:
        if self.figure is not None:
            return []
        return [side_by_side(part.study, part.printed, part.runs, part.profile) for part in self.parts]

    def drawn(self) -> list[Path]:
        """The files of the figure, if it is one."""
        if self.figure is None:
            return []
        return self.figure.save(_panels(self.figure, self.parts), self.root / "figures")


def planned_for(request: Request) -> Plan:
    """The runs of a table or figure, each study below a folder of its own: the same command goes on where it was."""
    if not request.name.startswith("figure-"):
        one = target(request.name, sweep=request.sweep)
        return Plan([_part(request, one.study(request.profile), one.printed)], request.root)
    drawing = figure(request.name)
    parts, missing = [], []
    for source in drawing.sources:
        study = source_study(source, request.profile)
        if drawing.sources[1:] and not request.download and not here(study):
            missing.append(f"{study.config().data.name} is not here: {request.name} is drawn without it")
            continue
        parts.append(_part(request, study, None))
    if drawing.sources and not parts:
        _part(request, source_study(drawing.sources[0], request.profile), None)  # says where to get the data
    return Plan(parts, request.root, drawing, tuple(missing))


def _part(request: Request, study: Study, printed: paper.Table | None) -> Part:
    study = chosen(study, request.methods)
    settings = [*request.settings, *([] if request.rounds is None else [f"rounds={request.rounds}"])]
    data = study.config(settings=settings).data
    if data.name in catalogue.names():
        if not request.verify and "verify" in catalogue.accepted(data.name):
            settings.append("data.verify=false")
        if request.download or not catalogue.available(data.name):
            catalogue.load(data.name, download=request.download)
    folder = request.root / f"{study.name}-{request.profile}"
    runs = planned(study, list(request.seeds) or study.seeds, settings, folder)
    return Part(study, request.profile, printed, runs)


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
            raise AdafedError(f"--method is {wanted!r}; {study.name} has {', '.join(study.methods)}")
        kept += found
    return study.with_methods({row: study.methods[row] for row in study.methods if row in kept})


# Ours beside the paper's


def side_by_side(study: Study, printed: paper.Table | None, runs: Sequence[Run], profile: str | None) -> Table:
    """Each method's row and below it the row the paper prints, doubtful numbers marked and explained."""
    found: dict[str, list[RunSummary]] = {run.method: [] for run in runs}
    for run in runs:
        if (run.directory / "rounds.sqlite").exists():
            found[run.method].append(summarise(run.directory))
    columns = study.columns
    rows: list[Row] = []
    reasons: dict[str, list[str]] = {}
    pending = [study.paper.get(method, method) for method in found]
    for method, summaries in found.items():
        numbers = [[one.final.get(key) for key in columns] for one in summaries]
        personal = any(one.personalised for one in summaries)
        rows.append(Row(method, cells(numbers) if numbers else tuple(Cell(()) for _ in columns), personal))
        beside = pending.pop(0)
        if printed is not None and beside in printed.rows and beside not in pending:
            rows.append(_printed_row(printed, beside, columns, reasons))
    notes = [*study.notes, *of_profile(study, profile, runs)]
    notes += _commonest(runs, found)
    if any(key in PERCENT for key in columns):
        notes.append("accuracies and σ_a in percent")
    for reason, marked in reasons.items():
        notes.append(f"† {', '.join(marked)}: {reason}")
    short = [one for summaries in found.values() for one in summaries if not one.complete]
    notes += [f"{one.path}: only {one.rounds} of {one.config.rounds} rounds" for one in short]
    title = f"{study.title or study.name}: ours and the paper's" + ("" if profile is None else f", {profile} profile")
    return Table(title, tuple(column(key) for key in columns), tuple(rows), tuple(notes))


def _printed_row(printed: paper.Table, method: str, columns: Sequence[str], reasons: dict[str, list[str]]) -> Row:
    line = []
    for key in columns:
        metric = _metric(key)
        if metric not in printed.rows[method]:
            line.append(Cell(()))
            continue
        number = printed.number(method, metric)
        digits = -int(printed.rows[method][metric].as_tuple().exponent)
        line.append(Cell((number.value,), "" if number.trusted else "†", digits))
        if number.reason is not None:
            reasons.setdefault(number.reason, []).append(f"{method}, {column(key).label}")
    return Row(f"{method}, paper", tuple(line), reference=True)


def _metric(key: str) -> str:
    """worst_5 and worst_10 are "worst" in the paper's tables, whose set-up says which it is."""
    return key.removeprefix(CLIENT) if key.startswith(CLIENT) else key.removesuffix("_5").removesuffix("_10")


def of_profile(study: Study, profile: str | None, runs: Sequence[Run]) -> list[str]:
    """What was changed to make it affordable, so that nobody takes it for the paper's experiment."""
    if not runs:
        return []
    told = []
    first = runs[0]
    before = _flat(study.config(first.method, first.config.seed).to_dict())
    if profile not in (None, "paper"):
        begun = lineage(study.name, profile, study.profiles)
        own = [{k: v for k, v in study.profiles[one].items() if k not in NO_CHANGE} for one in begun]
        keys = {line.partition(" = ")[0] for one in own for line in _flat(one)}
        changes = ", ".join(line for line in before if line.partition(" = ")[0] in keys)  # a variant may differ
        warning = next((WARNINGS[one] for one in begun if changes and one in WARNINGS), "")
        told.append(f"{profile} profile: {changes or 'as in the paper'}{warning}")
    # What the command line changed on top, as the first run shows it.
    asked = [line for line in _flat(first.config.to_dict()) if line not in before and not line.startswith("run.")]
    return [*told, f"changed by the command: {', '.join(asked)}"] if asked else told


def _flat(content: Mapping[str, Any], before: str = "") -> list[str]:
    lines: list[str] = []
    for key, value in content.items():
        lines += _flat(value, f"{before}{key}.") if isinstance(value, Mapping) else [f"{before}{key} = {value}"]
    return lines


def _commonest(runs: Sequence[Run], found: Mapping[str, list[RunSummary]]) -> list[str]:
    """How far one gets without looking at the inputs: a method near it has learnt nothing."""
    if not runs or not any(found.values()):
        return []
    share = commonest_share(runs[0].config)
    if share is None:
        return []
    means = {m: [one.final.get("mean") for one in summaries] for m, summaries in found.items() if summaries}
    low = [m for m, values in means.items() if all(v is not None and v <= CLEARLY * share for v in values)]
    told = f"always answering the commonest class has a mean of {share:.1f}"
    return [told + (f"; not clearly above it: {', '.join(low)}" if low else "")]


def commonest_share(config: Config) -> float | None:
    """Mean over clients of the percentage of their test samples that are of the class most trained on."""
    federation = open_from(config)
    if not isinstance(federation, IndexedFederation):
        return None
    targets_ = np.asarray(federation.dataset.targets)
    trained = np.concatenate([part.train for part in federation.parts])
    commonest = int(np.bincount(targets_[trained]).argmax())
    shares = [float(np.mean(targets_[part.test] == commonest)) for part in federation.parts if len(part.test)]
    return 100.0 * float(np.mean(shares)) if shares else None


# Tuning


def tuning(request: Request, method: str) -> tuple[Config, dict[str, tuple[float, ...]], Path]:
    """A method's configuration with a validation part, the paper's grid for it, and where the trials go."""
    study = target(request.name).study(request.profile)
    if method not in study.methods:
        raise AdafedError(f"--tune is {method!r}; {study.name} has {', '.join(study.methods)}")
    config = _part(replace(request, methods=[method]), study, None).runs[0].config  # --set need not suit other methods
    if config.split.validation == 0:
        config = config.changed(split={"validation": 0.1})
    printed = study.paper.get(method, method)
    grid = paper.grid(printed) if printed in paper.grids() else RULES.entry(config.rule.name).grid
    searched = {KEYS.get(key, f"rule.{key}"): values for key, values in grid.items() if len(values) > 1}
    return config, searched, request.root / f"{study.name}-{request.profile}-tune" / method


# Figures


def source_study(source: Source, profile: str | None) -> Study:
    """The study a figure's panel is drawn from; the paper's own length is for the paper's profile alone."""
    variant = source.paper if source.paper and profile == "paper" else source.variant
    study = load_study(_folder() / f"{source.experiment}.toml", profile, variant)
    return chosen(study, source.methods)


def _panels(drawing: Figure, parts: Sequence[Part]) -> list[Panel]:
    """One for each study that was run."""
    titles = {source.experiment: source.title for source in drawing.sources}
    found = []
    for part in parts:
        directories: dict[str, list[Path]] = {}
        for run in part.runs:
            if (run.directory / "rounds.sqlite").exists():
                directories.setdefault(run.method, []).append(run.directory)
        title = next(title for name, title in titles.items() if part.study.name.startswith(name))
        found.append(Panel(title, directories))
    return found


def here(study: Study) -> bool:
    name = study.config().data.name
    return name not in catalogue.names() or catalogue.available(name)


# What there is


def hours(study: Study, profile: str) -> float | None:
    """Of one seed on two cores, from the samples of a round and what one costs on a core."""
    cost = study.cost.get(profile)
    if cost is None:
        return None
    total = 0.0
    for method in study.methods:
        config = study.config(method)
        personal = 2 if config.ditto else 1
        total += config.rounds * config.local.epochs * cost["samples"] * cost["milliseconds"] * personal
    return OVERHEAD * total / 3.6e6 / CORES


def listing() -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Every table and figure: what it is, its data, hours at one seed on two cores, and whether the data is here."""
    rows: list[tuple[str, ...]] = []
    for one in targets().values():
        printed = one.printed
        assert printed is not None
        studies = [(profile, [one.study(profile)]) for profile in PROFILES]
        title = f"{studies[0][1][0].title} ({printed.label})"
        rows.append((one.name, title, *_costs(studies)))
    for drawing in FIGURES.values():
        studies = [(p, [source_study(source, p) for source in drawing.sources]) for p in PROFILES]
        rows.append((drawing.name, drawing.what, *_costs(studies)))
    return ("name", "in the paper", "data", "hours, paper", "hours, laptop", "data here"), rows


def _costs(studies: Sequence[tuple[str, list[Study]]]) -> tuple[str, ...]:
    needed = list(dict.fromkeys(study.config().data.name for study in studies[0][1]))
    told = [sum(hours(study, profile) or 0.0 for study in some) for profile, some in studies]
    present = [study.config().data.name for study in studies[0][1] if here(study)]
    answer = "yes" if set(present) == set(needed) else f"only {present[0]}" if present else "no"
    return (", ".join(needed) or "none", *(_told(value) for value in told), answer)


def _told(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}" if value >= 0.1 else "< 0.1"
