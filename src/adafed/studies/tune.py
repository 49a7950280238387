"""Hyper-parameter search under equal conditions: each rule's own grid times one grid of the server's for all, which is
its rates, its momentum and, where clients are sampled, whether it remembers those that were not.

The choice is made on the validation split, never on the test. Trials are run directories: an interrupted search goes
on where it was, and every trial can be looked at.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, product
from pathlib import Path
from typing import Any, Literal

import numpy as np

from adafed.config.configuration import Config
from adafed.config.loading import load_kept
from adafed.config.merging import parse_settings
from adafed.errors import AdafedError
from adafed.files import parsed, write_whole
from adafed.report.tables import Row, Table, cells, column
from adafed.runs.description import require_same
from adafed.runs.summary import RunSummary, summarise
from adafed.server_rules import RULES
from adafed.studies.compare import Run, Watch, last_round, run_all

RATES = (0.1, 0.3, 1.0, 3.0)
MOMENTA = (0.0, 0.9)
MEMORIES: tuple[int | str, ...] = (0, "all")
KEPT = 3  # of so many trials one goes on to the next rung
GIVEN_UP = 1.0  # points of mean accuracy that `fair` gives for fairness
Objective = Literal["mean", "worst_10", "fair", "both"]
Value = float | str
Values = dict[str, Value]


@dataclass(frozen=True)
class Trial:
    """One choice of hyper-parameters and its scores on the validation split, averaged over the seeds."""

    choice: Values
    scores: tuple[RunSummary, ...]

    def score(self, key: str) -> float:
        values = [one.tail.get(key) for one in self.scores]
        return sum(value for value in values if value is not None) / max(len(values), 1)

    @property
    def rounds(self) -> int:
        return min(one.rounds for one in self.scores)


@dataclass(frozen=True)
class Search:
    """What was tried, and which trials no other trial beats (one for a single objective)."""

    trials: tuple[Trial, ...]
    best: tuple[Trial, ...]


@dataclass(frozen=True)
class Bench:
    """Where trials are run and how."""

    config: Config
    out: Path
    seeds: Sequence[int]
    jobs: int
    watch: Watch

    def tried(self, choices: Sequence[Values], rounds: int) -> list[Trial]:
        """Every choice trained for so many rounds; one that was begun goes on."""
        planned = [[self._run(choice, seed, rounds) for seed in self.seeds] for choice in choices]
        for run in (run for runs in planned for run in runs if (run.directory / "config.toml").exists()):
            require_same(run.directory, load_kept(run.directory), run.config)
        # A run that went further in a search that was stopped is read as far as this rung.
        missing = [run for runs in planned for run in runs if last_round(run) <= rounds]
        run_all(missing, self.watch, jobs=self.jobs)
        scores = [tuple(_summary(run, rounds) for run in runs) for runs in planned]
        if not all(one.final for found in scores for one in found):
            every = self.config.evaluation.every
            raise AdafedError(f"evaluation.every = {every}: a trial was not evaluated by round {rounds}; set it lower")
        return [Trial(choice, found) for choice, found in zip(choices, scores, strict=True)]

    def _run(self, choice: Values, seed: int, rounds: int) -> Run:
        over = parse_settings(f"{key}={written(value)}" for key, value in choice.items())
        told = ", ".join(f"{key.partition('.')[2]}={shown(value)}" for key, value in choice.items())
        config = self.config.changed(**over, seed=seed, rounds=rounds)
        return Run(told, config, self.out / _name(choice) / f"seed-{seed}")


def _summary(run: Run, rounds: int) -> RunSummary:
    """A run as it was when its rung ended. In a file of its own, for a run that goes on loses what was measured because
    a round was its last, and a search that is repeated must choose as it did; in the run's directory, so that who
    removes the run removes what it said."""
    file = run.directory / "rungs.json"
    kept = _kept_rungs(file)
    found = summarise(run.directory, "validation", until=rounds)
    if str(rounds) in kept:
        final, tail = kept[str(rounds)]
        return replace(found, final=final, tail=tail)
    if found.final and found.rounds == rounds and last_round(run) == rounds:
        write_whole(file, json.dumps(kept | {str(rounds): [found.final, found.tail]}).encode())
    return found


def _kept_rungs(file: Path) -> dict[str, Any]:
    """What is no such file is as none: the run itself is still there."""
    try:
        kept = parsed(file.read_bytes())
        whole = all(len(one) == 2 and all(isinstance(part, dict) for part in one) for one in kept.values())
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):
        return {}
    return kept if whole else {}


def space(
    rule: str,
    rates: Sequence[float] = RATES,
    grid: Mapping[str, Sequence[float]] | None = None,
    momenta: Sequence[float] = (),
    memories: Sequence[Value] = (),
) -> dict[str, Any]:
    """The rule's grid from the paper, or `grid`, times the server's. A key with a dot is of another section."""
    own = dict(RULES.entry(rule).grid if grid is None else grid)
    named = {key if "." in key else f"rule.{key}": list(values) for key, values in own.items()}
    server: dict[str, Any] = {"server.rate": list(rates)}
    server |= {"server.optimizer.momentum": list(momenta)} if momenta else {}
    server |= {"memory.rounds": list(memories)} if memories else {}
    return {key: list(dict.fromkeys(values)) for key, values in (named | server).items()}  # a value twice is one folder


def server_grid(config: Config) -> tuple[tuple[float, ...], tuple[Value, ...]]:
    """The momenta and memories that are worth trying: momentum is SGD's, and where everyone answers in every round, or
    the rule has a memory of its own, there is nothing to remember."""
    sampled = config.cohort.count is not None or (config.cohort.fraction or 1.0) < 1.0
    plain = config.server.step != "safe"  # which goes without momentum
    momenta = MOMENTA if config.server.optimizer.name == "sgd" and plain else ()
    return momenta, MEMORIES if sampled and not config.parts.rule.previous else ()


def tune(
    config: Config,
    out: Path,
    *,
    objective: Objective = "worst_10",
    seeds: Sequence[int] = (1000,),
    rates: Sequence[float] = RATES,
    grid: Mapping[str, Sequence[float]] | None = None,
    momenta: Sequence[float] = (),
    memories: Sequence[Value] = (),
    trials: int | None = None,
    rungs: Sequence[int] = (),
    jobs: int = 1,
    watch: Watch = lambda *_: None,
) -> Search:
    """Search the whole grid, or `trials` points of it picked by Optuna's sampler.

    `seeds` should not be among those that are reported later. `rungs` makes it cheaper by successive halving: all
    points are trained for the first number of rounds, the best third goes on to the next, and so on to the end.
    Objective "fair" is the highest worst 10 % among the trials whose mean is within a point of the best; with "both"
    mean and worst 10 % are two objectives, and the best trials form their Pareto front.
    """
    if config.split.validation <= 0:
        raise AdafedError("split.validation = 0 leaves nothing to tune on; set it above 0, as in 0.1")
    choices = space(config.rule.name, rates, grid, momenta, memories)
    bench = Bench(config, out, seeds, jobs, watch)
    ladder = [*rungs, config.rounds]
    if any(low >= high for low, high in pairwise(ladder)) or min(ladder) < 1:
        raise AdafedError(f"rungs = {list(rungs)}: they must rise from at least 1 and end below rounds = {ladder[-1]}")
    if trials is None or trials >= math.prod(map(len, choices.values())):
        points = [dict(zip(choices, values, strict=True)) for values in product(*choices.values())]
        return _halved(bench, points, ladder, objective)
    if rungs:
        raise AdafedError("rungs search the whole grid and trials a part of it; give one of them")
    return _sampled(bench, choices, trials, objective)


def _halved(bench: Bench, points: list[Values], ladder: Sequence[int], objective: Objective) -> Search:
    beaten: list[Trial] = []
    for rounds in ladder[:-1]:
        order = ranked(bench.tried(points, rounds), objective)
        kept = math.ceil(len(order) / KEPT)
        points, beaten = [trial.choice for trial in order[:kept]], [*order[kept:], *beaten]
    last = bench.tried(points, ladder[-1])
    best = front(last) if objective == "both" else ranked(last, objective)[:1]
    return Search((*last, *beaten), tuple(best))


def _sampled(bench: Bench, choices: Mapping[str, list[Value]], trials: int, objective: Objective) -> Search:
    optuna = _optuna()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    done: dict[str, Trial] = {}

    def evaluate(trial: Any) -> tuple[float, ...]:
        choice = {key: trial.suggest_categorical(key, values) for key, values in choices.items()}
        (done[_name(choice)],) = bench.tried([choice], bench.config.rounds)
        return tuple(done[_name(choice)].score(key) for key in sought)

    sought = ("mean", "worst_10") if objective in ("both", "fair") else (objective,)
    study = optuna.create_study(directions=["maximize"] * len(sought), sampler=optuna.samplers.TPESampler(seed=0))
    study.optimize(evaluate, n_trials=trials)
    found = list(done.values())
    return Search(tuple(found), tuple(front(found) if objective == "both" else ranked(found, objective)[:1]))


def ranked(trials: Iterable[Trial], objective: Objective) -> list[Trial]:
    """Best first."""
    trials = list(trials)
    enough = max((trial.score("mean") for trial in trials), default=0.0) - GIVEN_UP

    def key(trial: Trial) -> tuple[float, ...]:
        mean, worst = trial.score("mean"), trial.score("worst_10")
        if objective == "mean":
            return (mean, worst)
        if objective == "worst_10":
            return (worst, mean)
        return (min(mean, enough), worst)

    return sorted(trials, key=key, reverse=True)


def front(trials: Iterable[Trial]) -> list[Trial]:
    """The trials that no other beats in both the mean and the worst 10 %."""
    trials = list(trials)
    points = {id(trial): (trial.score("mean"), trial.score("worst_10")) for trial in trials}

    def beaten(trial: Trial) -> bool:
        mean, worst = points[id(trial)]
        return any(m >= mean and w >= worst and (m, w) != (mean, worst) for m, w in points.values())

    return [trial for trial in trials if not beaten(trial)]


def search_table(search: Search, objective: Objective) -> Table:
    """All trials: those that were trained longest first, and among them the best."""
    keys = ("mean", "std", "worst_10", "best_10")
    rungs = sorted({trial.rounds for trial in search.trials}, reverse=True)
    order = [t for rounds in rungs for t in ranked((t for t in search.trials if t.rounds == rounds), objective)]
    rows = []
    for trial in order:
        choice = ", ".join(f"{key}={shown(value)}" for key, value in trial.choice.items())
        short = "" if len(rungs) == 1 else f", {trial.rounds} rounds"
        chosen = " ◀" if any(trial is one for one in search.best) else ""
        rows.append(Row(choice + short + chosen, cells([[one.tail.get(key) for key in keys] for one in trial.scores])))
    columns = tuple(column(key) for key in keys)
    what = {
        "both": "not beaten in both mean and worst 10 %",
        "fair": f"best worst 10 % within {GIVEN_UP:g} point of the best mean",
    }.get(objective) or f"best {column(objective).label}"
    return Table("", columns, tuple(rows), (f"validation split, last tenth of the rounds; ◀ {what}",), "choice")


def _name(choice: Values) -> str:
    return ",".join(f"{key}={written(value)}" for key, value in sorted(choice.items()))


def shown(value: Value) -> str:
    return value if isinstance(value, str) else f"{value:g}"


def written(value: Value) -> str:
    """As short as it can be read back from."""
    if isinstance(value, str):
        return value
    return repr(value.item() if isinstance(value, np.generic) else value).removesuffix(".0")


def _optuna() -> Any:
    try:
        import optuna
    except ModuleNotFoundError:
        raise AdafedError("picking trials needs Optuna, which is not installed; pip install 'adafed[tune]'") from None
    return optuna
