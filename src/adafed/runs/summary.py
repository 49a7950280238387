"""A finished or running experiment in a few numbers, read back from its run directory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from adafed.config.sections import Config, load_config
from adafed.errors import AdafedError
from adafed.metrics import Fairness
from adafed.report.tables import Column
from adafed.rounds.records import RoundRecord
from adafed.runs.store import Store

Metrics = dict[str, float | None]

COLUMNS: dict[str, Column] = {
    "mean": Column("mean %", 1, "$\\bar{a}$"),
    "std": Column("σ_a", -1, "$\\sigma_a$"),
    "floor": Column("chance", 0, "chance"),
    "excess": Column("σ_a left", -1, "$\\sigma_a$ left"),
    "worst_5": Column("worst 5%", 1, "Worst 5\\%"),
    "worst_10": Column("worst 10%", 1, "Worst 10\\%"),
    "best_5": Column("best 5%", 1, "Best 5\\%"),
    "best_10": Column("best 10%", 1, "Best 10\\%"),
    "angle": Column("angle °", -1, "Angle ($^{\\circ}$)"),
    "kl": Column("KL(a‖u)", -1, "KL ($a\\|u$)", 4),
    "jain": Column("Jain", 1, digits=4),
    "gini": Column("Gini", -1, digits=4),
    "loss_std": Column("loss σ", -1, digits=3),
    "loss_range": Column("loss range", -1, digits=3),
    "rho": Column("ρ %", 1, "$\\rho_t$"),
}
PERCENT = {"mean", "std", "floor", "excess", "worst_5", "worst_10", "best_5", "best_10", "rho"}
CLIENT = "client:"  # a column of one client's accuracy is this and its id
NAMED_CLIENTS = 20  # where there are more, a column for one of them makes no table
LATE = 0.1  # the share of the rounds, at the end, whose evaluations are averaged
USUAL = ("mean", "std", "floor", "excess", "worst_10", "best_10", "rho")


def column(key: str, where: str = "columns") -> Column:
    """A measure of all clients, or `client:ID`."""
    if isinstance(key, str) and key.startswith(CLIENT):
        return Column(key.removeprefix(CLIENT), 1)
    if key not in COLUMNS:
        raise AdafedError(f"{where} names {key!r}; there are {', '.join(COLUMNS)} and {CLIENT}ID")
    return COLUMNS[key]


@dataclass(frozen=True)
class RunSummary:
    """One run. `final` is its last evaluation, `tail` the mean over those in the last tenth of its rounds."""

    path: Path
    config: Config
    label: str
    rounds: int
    personalised: bool
    final: Metrics
    tail: Metrics

    @property
    def complete(self) -> bool:
        return self.rounds >= self.config.rounds


def summarise(path: str | Path, part: str = "test", *, until: int | None = None) -> RunSummary:
    """Read a run directory, or its rounds `until` one of them; raises one sentence where it is none."""
    folder = Path(path)
    if not (folder / "config.toml").exists() or not (folder / "rounds.sqlite").exists():
        raise AdafedError(f"{path} is not a run directory: it has no config.toml and rounds.sqlite")
    config = load_config(folder / "config.toml")
    last, evaluated = evaluations(folder, part, until)
    late = [record for record in evaluated if record.round > (1 - LATE) * last] or evaluated[-1:]
    found = [metrics(record, part) for record in late]
    final = found[-1] if found else {}
    tail = {key: known_mean([one[key] for one in found]) for key in final}
    return RunSummary(folder, config, label(config), last, config.personalised, final, tail)


def evaluations(folder: Path, part: str = "test", until: int | None = None) -> tuple[int, list[RoundRecord]]:
    """The last round of a run directory, and its records with an evaluation on `part`."""
    store = Store(folder / "rounds.sqlite", read_only=True)
    try:
        records = list(store.records(evaluated=True))
        last = store.last_round() if until is None else min(store.last_round(), until)
    finally:
        store.close()
    return last, [one for one in records if one.evaluation(part) is not None and one.round <= last]


def label(config: Config) -> str:
    """How a method is called in a table when nobody named it."""
    return config.label


def metrics(record: RoundRecord, part: str = "test") -> Metrics:
    """The measures of an evaluated round; shares are percent here, as they are printed."""
    evaluation = record.evaluation(part)
    assert evaluation is not None
    clients: Metrics = {}
    if len(evaluation.scores) <= NAMED_CLIENTS:
        shares = [(f"{CLIENT}{client}", score.accuracy) for client, score in evaluation.scores]
        clients = {key: None if share is None else 100.0 * share for key, share in shares}
    return fairness_metrics(evaluation.fairness) | clients | {"rho": None if record.rho is None else 100.0 * record.rho}


def fairness_metrics(fairness: Fairness) -> Metrics:
    values: Metrics = {key: value for key, value in asdict(fairness).items() if key != "clients"}
    return {key: value * 100.0 if key in PERCENT and value is not None else value for key, value in values.items()}


def known_mean(values: Sequence[float | None]) -> float | None:
    """None where one of the values is not known."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if len(known) == len(values) and known else None
