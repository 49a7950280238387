"""What the command asks for, the runs, tables and figures that follow, and the search for one of the methods."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from adafed import paper
from adafed.config.configuration import Config
from adafed.config.studies import Study
from adafed.data import catalogue
from adafed.errors import AdafedError, quoted
from adafed.paper.reproduce.ours_and_printed import side_by_side
from adafed.paper.reproduce.targets import chosen, here, source_study, target
from adafed.report.figures import Figure, Panel, Source, figure
from adafed.report.tables import Table
from adafed.server_rules import RULES
from adafed.studies.compare import Run, begun, planned

# How the grids of the paper are called here.
KEYS = {"lambda": "ditto.lambda", "eta_t": "rule.step"}
USUAL_PROFILE = "laptop"


@dataclass(frozen=True)
class Request:
    """What the command line asks for. `out` holds a folder for each study and profile."""

    name: str
    profile: str = USUAL_PROFILE
    methods: Sequence[str] | None = None
    seeds: Sequence[int] = ()
    rounds: int | None = None
    settings: Sequence[str] = ()
    out: Path | None = None
    sweep: bool = False
    download: bool = False
    verify: bool = True
    panels: Sequence[str] = ()

    @property
    def root(self) -> Path:
        return self.out or Path("runs") / "reproduce"


@dataclass(frozen=True)
class Part:
    """One study to run, and the printed table it is set beside."""

    study: Study
    profile: str
    printed: paper.PrintedTable | None
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
    drawing.require()
    if not drawing.sources:
        _require_nothing(request)
    parts, missing = [], []
    for source in _panels_wanted(drawing, request.panels):
        study = source_study(source, request.profile)
        if drawing.sources[1:] and not request.download and not here(study, request.settings):
            missing.append(f"{study.config().data.name} is not here: {request.name} is drawn without it")
            continue
        parts.append(_part(replace(request, profile=source.profile or request.profile), study, None))
    if drawing.sources and not parts:
        _part(request, source_study(drawing.sources[0], request.profile), None)  # says where to get the data
    return Plan(parts, request.root, drawing, tuple(missing))


def _require_nothing(request: Request) -> None:
    """A figure that is computed needs no runs, and what is asked of runs would be passed over in silence."""
    asked = {
        "--profile": None if request.profile == USUAL_PROFILE else request.profile,
        "--method": ", ".join(request.methods or ()),
        "--seeds": ", ".join(map(str, request.seeds)),
        "--rounds": request.rounds,
        "--gamma-sweep": "asked for" if request.sweep else None,
    }
    for option, value in asked.items():
        if value:
            raise AdafedError(f"{option} is {value}; {request.name} is computed without runs, so leave it out")


def _panels_wanted(drawing: Figure, panels: Sequence[str]) -> Sequence[Source]:
    """Of the experiments a figure is drawn from, those that are named, or all."""
    there = [source.experiment for source in drawing.sources]
    for name in panels:
        if name not in there:
            raise AdafedError(f"--panel is {name!r}; {drawing.name} has {', '.join(there) or 'none'}")
    return [source for source in drawing.sources if not panels or source.experiment in panels]


def _part(request: Request, study: Study, printed: paper.PrintedTable | None) -> Part:
    study = chosen(study, request.methods)
    settings = [*request.settings, *([] if request.rounds is None else [f"rounds={request.rounds}"])]
    data = study.config(settings=settings).data
    if data.name in catalogue.names():
        if not request.verify and "verify" in catalogue.accepted(data.name):
            settings.append("data.verify=false")
        where = data.options.get("dir")
        if request.download or not catalogue.available(data.name, where):
            catalogue.load(data.name, where, download=request.download)
    folder = request.root / f"{study.name}-{request.profile}"
    runs = planned(study, list(request.seeds) or study.seeds, settings, folder)
    return Part(study, request.profile, printed, runs)


def _panels(drawing: Figure, parts: Sequence[Part]) -> list[Panel]:
    """One for each study that was run."""
    titles = {source.experiment: source.title for source in drawing.sources}
    found = []
    for part in parts:
        directories: dict[str, list[Path]] = {}
        for run in part.runs:
            if begun(run):
                directories.setdefault(run.method, []).append(run.directory)
        title = next(title for name, title in titles.items() if part.study.name.startswith(name))
        found.append(Panel(title, directories))
    return found


def tuning(request: Request, method: str) -> tuple[Config, dict[str, tuple[float, ...]], Path]:
    """A method's configuration with a validation part, the paper's grid for it, and where the trials go."""
    study = target(request.name).study(request.profile)
    if method not in study.methods:
        raise AdafedError(f"--tune is {method!r}; {study.name} has {quoted(study.methods)}")
    config = _part(replace(request, methods=[method]), study, None).runs[0].config  # --set need not suit other methods
    if config.split.validation == 0:
        config = config.changed(split={"validation": 0.1})
    printed = study.paper.get(method, method)
    grid = paper.grid(printed) if printed in paper.grids() else RULES.entry(config.rule.name).grid
    searched = {KEYS.get(key, f"rule.{key}"): values for key, values in grid.items() if len(values) > 1}
    return config, searched, request.root / f"{study.name}-{request.profile}-tune" / method
