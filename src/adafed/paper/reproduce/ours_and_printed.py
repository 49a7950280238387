"""Our numbers beside the printed ones, and what a reader has to know of both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from adafed import paper
from adafed.config.configuration import Config
from adafed.config.studies import Study, lineage
from adafed.data.federation import IndexedFederation
from adafed.data.framed import FramedFederation
from adafed.engines.station import open_from
from adafed.metrics import CLIENT, metric
from adafed.report.tables import Cell, Row, Table, cells, column
from adafed.runs.summary import RunSummary, summarise
from adafed.studies.compare import Run, begun

CLEARLY = 1.1  # what a mean accuracy must be, in units of the commonest class's, to be called above it
WARNINGS = {
    "laptop": "; the order of the methods may compare with the paper's, the numbers do not",
    "smoke": "; it shows that everything runs and nothing else",
}
NO_CHANGE = ("from", "seeds", "methods", "variants", "notes")  # what in a profile is no change of the experiment


def side_by_side(study: Study, printed: paper.PrintedTable | None, runs: Sequence[Run], profile: str | None) -> Table:
    """Each method's row and below it the row the paper prints, doubtful numbers marked and explained."""
    found: dict[str, list[RunSummary]] = {run.method: [] for run in runs}
    for run in runs:
        if begun(run):
            found[run.method].append(summarise(run.directory, columns=study.columns))
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
    if any(metric(key).percent for key in columns):
        notes.append("accuracies and σ_a in percent")
    for reason, marked in reasons.items():
        notes.append(f"† {', '.join(marked)}: {reason}")
    short = [one for summaries in found.values() for one in summaries if not one.complete]
    notes += [f"{one.path}: only {one.rounds} of {one.config.rounds} rounds" for one in short]
    title = f"{study.title or study.name}: ours and the paper's" + ("" if profile is None else f", {profile} profile")
    return Table(title, tuple(column(key) for key in columns), tuple(rows), tuple(notes))


def _printed_row(
    printed: paper.PrintedTable, method: str, columns: Sequence[str], reasons: dict[str, list[str]]
) -> Row:
    line = []
    for key in columns:
        name = _printed_name(key)
        if name not in printed.rows[method]:
            line.append(Cell(()))
            continue
        number = printed.number(method, name)
        digits = -int(printed.rows[method][name].as_tuple().exponent)
        line.append(Cell((number.value,), "" if number.trusted else "†", digits))
        if number.reason is not None:
            reasons.setdefault(number.reason, []).append(f"{method}, {column(key).label}")
    return Row(f"{method}, paper", tuple(line), reference=True)


def _printed_name(key: str) -> str:
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
        # What the paper's own profile sets is the experiment, not a change of it.
        changed = [study.profiles[one] for one in begun if one != "paper"]
        own = [{k: v for k, v in one.items() if k not in NO_CHANGE} for one in changed]
        keys = {line.partition(" = ")[0] for one in own for line in _flat(one)}
        changes = ", ".join(line for line in before if line.partition(" = ")[0] in keys)  # a variant may differ
        warning = next((WARNINGS[one] for one in begun if changes and one in WARNINGS), "")
        methods = {name for one in begun for name in study.profiles[one].get("methods", {})}
        # A row of a sweep is called after its method: "AdaFed, gamma=5".
        chosen = ", ".join(
            dict.fromkeys(name for run in runs for name in methods if f"{run.method},".startswith(f"{name},"))
        )
        told.append(
            f"{profile} profile: {changes or 'as in the paper'}{warning}"
            + (f"; settings of its own for {chosen}" if chosen else "")
        )
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
    if isinstance(federation, FramedFederation):
        federation = federation.federation
    if not isinstance(federation, IndexedFederation):
        return None
    targets_ = np.asarray(federation.dataset.targets)
    trained = np.concatenate([part.train for part in federation.parts])
    commonest = int(np.bincount(targets_[trained]).argmax())
    shares = [float(np.mean(targets_[part.test] == commonest)) for part in federation.parts if len(part.test)]
    return 100.0 * float(np.mean(shares)) if shares else None
