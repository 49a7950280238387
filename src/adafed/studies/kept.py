"""What a study found, small enough to keep: the evaluations of all its runs in one JSON file, written, read and joined.

A run directory has a row for every client and evaluation; a kept file has a few numbers for each.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from adafed.config.configuration import Config
from adafed.config.loading import load_kept
from adafed.errors import AdafedError, quoted
from adafed.files import alone, full_disk_in_a_sentence, parsed, write_whole
from adafed.metrics import CLIENT, METRICS
from adafed.rounds.cohort import BY_LOSS
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
    _make_folder_of(path)
    write_whole(path, text.encode())


def _make_folder_of(path: Path) -> None:
    with full_disk_in_a_sentence(path):
        path.parent.mkdir(parents=True, exist_ok=True)


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
    """Write, or add to what is kept there already; of two commands that end at once, the second adds to the first's."""
    _make_folder_of(path)
    with alone(path.with_name(f".{path.name}.lock")):
        old = kept_for(path, new.title, new.told)
        if old is not None:
            for run in new.runs:  # another command may have kept others since these were begun
                _require_one(old, run.method, run.rounds, run.settings.get("experiment"), path)
        save(new if old is None else joined(old, new), path)


def kept_for(path: Path, title: str, told: Mapping[str, Any]) -> Kept | None:
    """What a file keeps of this study; None where there is no file. Worth asking before hours of runs."""
    _make_folder_of(path)
    with full_disk_in_a_sentence(path):
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
    content["data"] = {key: value for key, value in content["data"].items() if key not in ("dir", "download")}
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()[:12]


def require_alike(old: Kept, runs: Sequence[Run], path: Path) -> None:
    """A method has one experiment and one number of rounds in a file: tables average over its seeds."""
    for run in runs:
        _require_one(old, run.method, run.config.rounds, experiment_of(run.config), path)


def _require_one(old: Kept, method: str, rounds: int, experiment: str | None, path: Path) -> None:
    for kept in old.methods().get(method, {}).values():
        if kept.rounds != rounds:
            raise AdafedError(
                f"{path} keeps {kept.rounds} rounds of {method}, and these are {rounds}; choose another file"
            )
        if experiment is not None and kept.settings.get("experiment", experiment) != experiment:
            raise AdafedError(f"{path} keeps {method} with other settings than these; choose another file")


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


def direction(key: str) -> int:
    """1 where more is better, -1 where less is; what nobody knows of is taken to be better the more there is."""
    return (METRICS[key].direction if key in METRICS else 1) or 1


def _rounded(key: str, value: float | None) -> float | None:
    """To more digits than are printed, so that means of them are not off."""
    printed = METRICS[key].digits if key in METRICS else 0
    return None if value is None else round(value, max(DIGITS, printed + 1))
