"""Hyper-parameter search under equal conditions: each rule's own grid times one grid of server rates for all.

The choice is made on the validation split, never on the test. Trials are run directories: an interrupted search goes
on where it was, and every trial can be looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from adafed.compare import Run, finished
from adafed.errors import AdafedError
from adafed.records import RoundRecord
from adafed.report.tables import Column, Row, Table, cells
from adafed.runs.config import Config
from adafed.runs.summary import COLUMNS, RunSummary, summarise
from adafed.server_rules import RULES
from adafed.simulate import simulate

RATES = (0.1, 0.3, 1.0, 3.0)
Objective = Literal["mean", "worst_10", "both"]
Values = dict[str, float]


@dataclass(frozen=True)
class Trial:
    """One choice of hyper-parameters and its scores on the validation split, averaged over the seeds."""

    choice: Values
    scores: tuple[RunSummary, ...]

    def score(self, key: str) -> float:
        values = [one.tail.get(key) for one in self.scores]
        return sum(value for value in values if value is not None) / max(len(values), 1)


@dataclass(frozen=True)
class Search:
    """What was tried, and which trials no other trial beats (one for a single objective)."""

    trials: tuple[Trial, ...]
    best: tuple[Trial, ...]


def space(rule: str, rates: Sequence[float] = RATES, grid: dict[str, Sequence[float]] | None = None) -> dict[str, Any]:
    """The rule's grid from the paper, or `grid`, times the server rates. A key with a dot is of another section."""
    own = dict(RULES.entry(rule).grid if grid is None else grid)
    named = {key if "." in key else f"rule.{key}": list(values) for key, values in own.items()}
    return named | {"server.rate": list(rates)}


def tune(
    config: Config,
    out: Path,
    *,
    objective: Objective = "worst_10",
    seeds: Sequence[int] = (1000,),
    rates: Sequence[float] = RATES,
    grid: dict[str, Sequence[float]] | None = None,
    trials: int | None = None,
    watch: Callable[[Values, int, RoundRecord], None] | None = None,
) -> Search:
    """Search the whole grid, or `trials` points of it picked by Optuna's sampler.

    `seeds` should not be among those that are reported later. With objective "both" the mean accuracy and the worst
    10 % are two objectives, and the best trials form their Pareto front.
    """
    optuna = _optuna()
    if config.split.validation <= 0:
        raise AdafedError("split.validation = 0 leaves nothing to tune on; set it above 0, as in 0.1")
    choices = space(config.rule.name, rates, grid)
    size = 1
    for values in choices.values():
        size *= len(values)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    whole = trials is None or trials >= size
    sampler = optuna.samplers.GridSampler(choices, seed=0) if whole else optuna.samplers.TPESampler(seed=0)
    directions = ["maximize"] * (2 if objective == "both" else 1)
    done: dict[str, Trial] = {}

    def evaluate(trial: Any) -> tuple[float, ...]:
        choice = {key: float(trial.suggest_categorical(key, values)) for key, values in choices.items()}
        found = _tried(config, choice, out, seeds, watch)
        done[_name(choice)] = found
        return tuple(found.score(key) for key in _keys(objective))

    study = optuna.create_study(directions=directions, sampler=sampler)
    study.optimize(evaluate, n_trials=size if whole else trials)
    best = [done[_name({k: float(v) for k, v in trial.params.items()})] for trial in study.best_trials]
    unique = {_name(one.choice): one for one in best}
    winners = tuple(unique.values()) if objective == "both" else tuple(unique.values())[:1]
    return Search(tuple(done[name] for name in sorted(done)), winners)


def _tried(
    config: Config,
    choice: Values,
    out: Path,
    seeds: Sequence[int],
    watch: Callable[[Values, int, RoundRecord], None] | None,
) -> Trial:
    over: dict[str, Any] = {}
    for key, value in choice.items():
        section, _, option = key.partition(".")
        over.setdefault(section, {})[option] = value
    summaries = []
    for seed in seeds:
        run = Run(_name(choice), config.changed(**over, seed=seed), out / _name(choice) / f"seed-{seed}")
        if not finished(run):
            for record in simulate(run.config, directory=run.directory):
                if watch is not None:
                    watch(choice, seed, record)
        summaries.append(summarise(run.directory, "validation"))
    return Trial(choice, tuple(summaries))


def search_table(search: Search, objective: Objective) -> Table:
    """All trials, best first."""
    keys = ("mean", "std", "worst_10", "best_10")
    order = sorted(search.trials, key=lambda trial: tuple(-trial.score(key) for key in _keys(objective)))
    rows = []
    for trial in order:
        choice = ", ".join(f"{key}={value:g}" for key, value in trial.choice.items())
        chosen = " ◀" if any(trial is one for one in search.best) else ""
        rows.append(Row(choice + chosen, cells([[one.tail.get(key) for key in keys] for one in trial.scores])))
    columns: tuple[Column, ...] = tuple(COLUMNS[key] for key in keys)
    what = "not beaten in both mean and worst 10 %" if objective == "both" else f"best {COLUMNS[objective].label}"
    return Table("", columns, tuple(rows), (f"validation split, last tenth of the rounds; ◀ {what}",), "choice")


def _keys(objective: Objective) -> tuple[str, ...]:
    return ("mean", "worst_10") if objective == "both" else (objective,)


def _name(choice: Values) -> str:
    return ",".join(f"{key}={value:g}" for key, value in sorted(choice.items()))


def _optuna() -> Any:
    try:
        import optuna
    except ModuleNotFoundError:
        raise AdafedError("tuning needs Optuna, which is not installed; pip install 'adafed[tune]'") from None
    return optuna
