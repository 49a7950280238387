"""What a study found, small enough to keep: the evaluations of all its runs in one JSON file, and what they say.

Three tables are read from it: each method's numbers, paired differences to one method over the seeds, and how many
rounds each needed. A run directory has a row for every client and evaluation; a kept file has a few numbers for each.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from adafed.config.configuration import Config
from adafed.config.loading import load_kept
from adafed.errors import AdafedError, quoted
from adafed.files import full_disk_in_a_sentence, parsed, write_whole
from adafed.metrics import CLIENT, METRICS, own_label
from adafed.report.figures import Curves
from adafed.report.tables import HALF, Cell, Column, Row, Table, cells, column
from adafed.rounds.cohort import BY_LOSS, OTHER_COHORTS
from adafed.runs.summary import LATE, Metrics, evaluations, known_mean, metrics
from adafed.studies.compare import Run, last_round

FORMAT = 2
WITHOUT = {1: ("floor", "excess")}  # measures whose formula has changed since files of that format were kept
SMOOTHED = 3  # evaluations averaged before a round counts as having reached something: one swing is no arrival
DIGITS = 3
NOT_OF_THE_METHOD = ("name", "seed", "seeds", "rounds", "run", "evaluation", "track")
LARGEST = 1e300  # no measure is beyond, nor a seed, and sums of them stay numbers


@dataclass(frozen=True)
class KeptRun:
    """One run. `evaluations` holds, for each measure, its values at `at`, the rounds of the evaluations."""

    method: str
    seed: int
    rounds: int
    personalised: bool
    at: tuple[int, ...]
    evaluations: dict[str, tuple[float | None, ...]]
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def final(self) -> Metrics:
        return {key: values[-1] if values else None for key, values in self.evaluations.items()}

    @property
    def tail(self) -> Metrics:
        """The mean over the evaluations of the last tenth of the rounds."""
        late = [k for k, round_ in enumerate(self.at) if round_ > (1 - LATE) * self.rounds] or [len(self.at) - 1]
        return {key: known_mean([values[k] for k in late]) for key, values in self.evaluations.items() if values}

    def reached(self, key: str, level: float) -> int | None:
        """The first round at which the measure, averaged over three evaluations, is at least `level`; at most, where
        less is better."""
        better = direction(key)
        values = self.evaluations.get(key, ())
        for k in range(SMOOTHED - 1, len(values)):
            mean = known_mean(values[k - SMOOTHED + 1 : k + 1])
            if mean is not None and better * mean >= better * level:
                return self.at[k]
        return None


@dataclass(frozen=True)
class Kept:
    """A study's runs. `told` is how it was made: the command, the profile, versions."""

    title: str
    columns: tuple[str, ...]
    runs: tuple[KeptRun, ...]
    told: dict[str, Any] = field(default_factory=dict)

    def measures(self) -> tuple[str, ...]:
        """What there is of every run, or of some."""
        return tuple(dict.fromkeys(key for run in self.runs for key in run.evaluations))

    def only(self, methods: Sequence[str]) -> Kept:
        """Its runs of these methods, in this order."""
        there = self.methods()
        for method in methods:
            if method not in there:
                raise AdafedError(f"--method is {method!r}; the file has {quoted(there)}")
        runs = tuple(run for method in dict.fromkeys(methods) for run in there[method].values())
        return replace(self, runs=runs)

    def methods(self) -> dict[str, dict[int, KeptRun]]:
        found: dict[str, dict[int, KeptRun]] = {}
        for run in self.runs:
            found.setdefault(run.method, {})[run.seed] = run
        return found


def kept_run(method: str, directory: Path, part: str = "test", columns: Sequence[str] = ()) -> KeptRun | None:
    """From a run directory, with what its study prints (`columns`); None where it has no evaluation yet."""
    config = load_kept(directory)
    last, records = evaluations(directory, part)
    if not records:
        return None
    found = [metrics(record, part, columns) for record in records]
    named = [key for key in found[0] if key in columns or key.startswith(CLIENT) or METRICS[key].kept]
    told = {"rule": config.to_dict()["rule"], "rate": config.server.rate, "loss": config.server.loss}
    told["experiment"] = experiment_of(config)
    if config.memory.rounds != 0:
        told["memory"] = config.memory.rounds
    if config.cohort.sampling in BY_LOSS:
        told["sampling"] = config.cohort.sampling
    values = {key: tuple(_rounded(key, one.get(key)) for one in found) for key in named}
    at = tuple(record.round for record in records)
    return KeptRun(method, config.seed, last, config.personalised, at, values, told)


def save(kept: Kept, path: Path) -> None:
    """One line a run, so that a later run changes one line of the file."""
    head = {"format": FORMAT, "title": kept.title, "columns": kept.columns, "told": kept.told}
    lines = [json.dumps(_packed(run)) for run in kept.runs]
    text = json.dumps(head)[:-1] + ', "runs": [\n' + ",\n".join(lines) + "\n]}\n"
    with full_disk_in_a_sentence(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, text.encode())


def load(path: str | Path) -> Kept:
    try:
        content = parsed(Path(path).read_bytes())
        known = content["format"]
        if not (isinstance(content["title"], str) and _words(content["columns"]) and isinstance(content["told"], dict)):
            raise ValueError("not what `save` writes")
        readable = type(known) is int and known in (FORMAT, *WITHOUT)
        runs = tuple(_unpacked(run, WITHOUT.get(known, ())) for run in _list(content["runs"])) if readable else ()
        if len({(run.method, run.seed) for run in runs}) < len(runs):
            raise ValueError("a run is there twice")
        kept = Kept(content["title"], tuple(content["columns"]), runs, content["told"])
    except OSError as error:
        raise AdafedError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError):
        raise AdafedError(f"{path} holds no kept results; adafed reproduce NAME --keep FILE writes them") from None
    if not readable:
        raise AdafedError(f"{path} is of format {known!r}; this version reads {FORMAT}")
    return kept


def gathered(title: str, columns: Sequence[str], runs: Sequence[Run], told: Mapping[str, Any]) -> Kept:
    """Of the runs that are finished: a kept file does not say how many rounds were asked for, so one that was stopped
    would be compared as if it had had them all. The same command goes on with it, and keeps it then."""
    there = [run for run in runs if last_round(run) >= run.config.rounds]
    found = [kept_run(run.method, run.directory, columns=columns) for run in there]
    return Kept(title, tuple(columns), tuple(run for run in found if run is not None), dict(told))


def keep(new: Kept, path: Path) -> None:
    """Write, or add to what is kept there already."""
    old = kept_for(path, new.title, new.told)
    save(new if old is None else joined(old, new), path)


def kept_for(path: Path, title: str, told: Mapping[str, Any]) -> Kept | None:
    """What a file keeps of this study; None where there is no file. Worth asking before hours of runs."""
    with full_disk_in_a_sentence(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            return None
    old = load(path)
    if old.runs and (old.title, old.told) != (title, dict(told)):
        was, is_ = (
            ", ".join([name, *map(str, more.values())]) for name, more in ((old.title, old.told), (title, told))
        )
        raise AdafedError(f"{path} keeps {was!r}, and these runs are of {is_!r}; choose another file")
    return old


def experiment_of(config: Config) -> str:
    """Of all that a method's runs share, in a few letters; how long it is and where it runs does not count."""
    content = {key: value for key, value in config.completed().to_dict().items() if key not in NOT_OF_THE_METHOD}
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()[:12]


def require_alike(old: Kept, runs: Sequence[Run], path: Path) -> None:
    """A method has one experiment and one number of rounds in a file: tables average over its seeds."""
    there = old.methods()
    for run in runs:
        for kept in there.get(run.method, {}).values():
            if kept.rounds != run.config.rounds:
                raise AdafedError(
                    f"{path} keeps {kept.rounds} rounds of {run.method}, and these are {run.config.rounds}; choose "
                    "another file"
                )
            if kept.settings.get("experiment", experiment_of(run.config)) != experiment_of(run.config):
                raise AdafedError(f"{path} keeps {run.method} with other settings than these; choose another file")


def joined(old: Kept, new: Kept) -> Kept:
    """The runs of both; where both have one, the new."""
    runs = {(run.method, run.seed): run for run in (*old.runs, *new.runs)}
    return Kept(new.title, new.columns, tuple(runs.values()), new.told)


def _packed(run: KeptRun) -> dict[str, Any]:
    return {**vars(run), "at": list(run.at), "evaluations": {k: list(v) for k, v in run.evaluations.items()}}


def _unpacked(content: Mapping[str, Any], without: Sequence[str] = ()) -> KeptRun:
    """What is not as `_packed` writes it is refused: a table made of it would be wrong, and nobody would see it."""
    values = {key: tuple(_list(value)) for key, value in content["evaluations"].items() if key not in without}
    run = KeptRun(**{**content, "at": tuple(_list(content["at"])), "evaluations": values})
    whole = (
        all(type(one) is int and 0 <= one <= LARGEST for one in (run.seed, run.rounds, *run.at))
        and isinstance(run.method, str)
        and isinstance(run.personalised, bool)
        and isinstance(run.settings, dict)
        and all(a < b for a, b in pairwise((0, *run.at)))
        and (run.at or (0,))[-1] <= run.rounds
        and all(len(found) == len(run.at) for found in values.values())
        and all(one is None or _is_number(one) for found in values.values() for one in found)
    )
    if not whole:
        raise ValueError("not what `_packed` writes")
    return run


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) <= LARGEST


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError("not a list")
    return value


def _words(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


# What they say


def scores(kept: Kept, columns: Sequence[str], *, final: bool = False) -> Table:
    """Each method's numbers: mean and standard deviation over its seeds."""
    rows = []
    for method, runs in kept.methods().items():
        numbers = [[(run.final if final else run.tail).get(key) for key in columns] for run in runs.values()]
        label = method if len(runs) == _most_seeds(kept) else f"{method} ({_seeds(len(runs))})"
        rows.append(Row(label, cells(numbers), next(iter(runs.values())).personalised))
    what = "the final model" if final else "means over the evaluations of the last tenth of the rounds"
    notes = (f"{what}; {_seeds(_most_seeds(kept))}", *(f"{key}: {value}" for key, value in kept.told.items()))
    return Table(kept.title, tuple(kept_column(key) for key in columns), tuple(rows), notes)


@dataclass(frozen=True)
class Difference:
    """The mean of paired differences and half the width of its interval (Student's t); None for one pair."""

    mean: float
    half: float | None
    pairs: int


def difference(values: Sequence[float], level: float = 0.95) -> Difference:
    mean = math.fsum(values) / len(values)
    if len(values) < 2:
        return Difference(mean, None, len(values))
    from scipy.special import stdtrit

    variance = math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)
    half = float(stdtrit(len(values) - 1, 0.5 + level / 2)) * math.sqrt(variance / len(values))
    return Difference(mean, half, len(values))


def paired(kept: Kept, against: str, columns: Sequence[str], *, final: bool = False) -> Table:
    """Every method minus `against` at the same seeds: the split and the first model are the same there, and the cohorts
    but where clients are drawn by their losses."""
    methods = kept.methods()
    if against not in methods:
        raise AdafedError(f"--against is {against!r}; there are {quoted(methods)}")
    rows = []
    for method, runs in methods.items():
        if method == against:
            continue
        both = sorted(runs.keys() & methods[against].keys())
        line = []
        for key in columns:
            pairs = [((a.final if final else a.tail).get(key), (b.final if final else b.tail).get(key))
                     for a, b in ((runs[seed], methods[against][seed]) for seed in both)]  # fmt: skip
            known = [a - b for a, b in pairs if a is not None and b is not None]
            line.append(interval(difference(known), max(2, kept_column(key).digits)) if known else Cell(()))
        rows.append(Row(method, tuple(line), next(iter(runs.values())).personalised))
    picked = tuple(Column(one.label, 0, digits=one.digits, spread=HALF) for one in map(kept_column, columns))
    notes = ["paired over the seeds, with half the width of the 95 % interval; one seed has none"]
    if any("sampling" in run.settings for run in kept.runs):
        notes.append(OTHER_COHORTS)
    return Table(f"{kept.title}: difference to {against}", picked, tuple(rows), tuple(notes))


def interval(found: Difference, digits: int, mark: str = "") -> Cell:
    told = "" if found.half is None else f" ±{found.half:.{digits}f}"
    return Cell((found.mean,), told + mark, half=found.half, seeds=found.pairs)


def rounds_to(kept: Kept, levels: Mapping[str, float]) -> Table:
    """How many rounds each method took to reach each level; a seed that never did is not counted, and told."""
    rows = []
    for method, runs in kept.methods().items():
        line = []
        for key, level in levels.items():
            reached = [run.reached(key, level) for run in runs.values()]
            there = tuple(float(round_) for round_ in reached if round_ is not None)
            missed = len(reached) - len(there)
            told = f" ({missed} of {len(reached)} never)" if missed else ""
            line.append(Cell(there, told, 0, competes=not missed, missed=missed))
        rows.append(Row(method, tuple(line), next(iter(runs.values())).personalised))
    signs = {1: "≥", -1: "≤"}
    picked = tuple(
        Column(f"{kept_column(key).label} {signs[direction(key)]} {level:g}", -1, missed="never")
        for key, level in levels.items()
    )
    note = f"the first round whose evaluation, averaged with the {SMOOTHED - 1} before it, is there"
    return Table(f"{kept.title}: rounds to reach", picked, tuple(rows), (note,))


def curves(kept: Kept, columns: Sequence[str]) -> list[Curves]:
    """Each measure over the rounds, every seed of every method: what `save_curves` draws."""
    panels = []
    for key in columns:
        seeds = {
            method: [_known(run.at, run.evaluations.get(key, ())) for run in runs.values()]
            for method, runs in kept.methods().items()
        }
        panels.append(Curves(kept.title, kept_column(key).label, seeds))
    return panels


def _known(at: Sequence[int], values: Sequence[float | None]) -> tuple[list[float], list[float]]:
    """The rounds that have a value, and those."""
    there = [(float(t), value) for t, value in zip(at, values, strict=False) if value is not None]
    return [t for t, _ in there], [value for _, value in there]


def usual_levels(kept: Kept, against: str) -> dict[str, float]:
    """Where `against` ends, a point below: what a slower method must reach too."""
    runs = kept.methods().get(against, {}).values()
    found = {key: known_mean([run.tail.get(key) for run in runs]) for key in ("mean", "worst_10")}
    return {key: round(value - 1.0, 1) for key, value in found.items() if value is not None}


def direction(key: str) -> int:
    """1 where more is better, -1 where less is; what nobody knows of is taken to be better the more there is."""
    return (METRICS[key].direction if key in METRICS else 1) or 1


def kept_column(key: str) -> Column:
    """A kept file is read without the user's module too: numbers need no formula."""
    try:
        return column(key)
    except AdafedError:
        return Column(own_label(key) or key)


def _most_seeds(kept: Kept) -> int:
    return max((len(runs) for runs in kept.methods().values()), default=0)


def _seeds(count: int) -> str:
    return f"{count} seed" if count == 1 else f"{count} seeds"


def _rounded(key: str, value: float | None) -> float | None:
    """To more digits than are printed, so that means of them are not off."""
    printed = METRICS[key].digits if key in METRICS else 0
    return None if value is None else round(value, max(DIGITS, printed + 1))
