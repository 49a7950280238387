"""A finished or running experiment in a few numbers, read back from its run directory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from adafed.config.configuration import Config
from adafed.config.loading import load_kept
from adafed.errors import AdafedError
from adafed.metrics import CLIENT, METRICS, value
from adafed.rounds.records import RoundRecord
from adafed.runs.store import Store

Metrics = dict[str, float | None]

NAMED_CLIENTS = 20  # where there are more, a column for one of them makes no table
LATE = 0.1  # the share of the rounds, at the end, whose evaluations are averaged


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
    clients: tuple[str, ...] = ()  # of the last evaluation

    @property
    def complete(self) -> bool:
        return self.rounds >= self.config.rounds


def summarise(
    path: str | Path, part: str = "test", *, until: int | None = None, columns: Sequence[str] = ()
) -> RunSummary:
    """Read a run directory, or its rounds `until` one of them; raises one sentence where it is none.

    The user's own measures are computed where `columns` names them.
    """
    folder = Path(path)
    if lost := [name for name in ("config.toml", "rounds.sqlite") if not (folder / name).exists()]:
        runs = any(folder.glob("*/rounds.sqlite")) or any(folder.glob("*/*/rounds.sqlite"))
        more = "; it holds runs: name those, or look at all of them with adafed report" if runs else ""
        raise AdafedError(f"{path} is not a run directory: it has no {' and no '.join(lost)}{more}")
    config = load_kept(folder)
    last, evaluated = evaluations(folder, part, until)
    late = [record for record in evaluated if record.round > (1 - LATE) * last] or evaluated[-1:]
    found = [metrics(record, part, columns) for record in late]
    final = found[-1] if found else {}
    tail = {key: known_mean([one[key] for one in found]) for key in final}
    tested = evaluated[-1].evaluation(part) if evaluated else None
    clients = tuple(str(client) for client, _ in tested.scores) if tested else ()
    return RunSummary(folder, config, config.label, last, config.personalised, final, tail, clients)


def evaluations(folder: Path, part: str = "test", until: int | None = None) -> tuple[int, list[RoundRecord]]:
    """The last round of a run directory, and its records with an evaluation on `part`."""
    store = Store(folder / "rounds.sqlite", read_only=True)
    try:
        records = list(store.records(evaluated=True))
        last = store.last_round() if until is None else min(store.last_round(), until)
    finally:
        store.close()
    return last, [one for one in records if one.evaluation(part) is not None and one.round <= last]


def metrics(record: RoundRecord, part: str = "test", columns: Iterable[str] = ()) -> Metrics:
    """The measures of an evaluated round as they are printed: all of the table, and what else `columns` names, which is
    the user's own and single clients."""
    evaluation = record.evaluation(part)
    assert evaluation is not None
    few = len(evaluation.scores) <= NAMED_CLIENTS
    clients = [f"{CLIENT}{client}" for client, _ in evaluation.scores] if few else []
    evaluated = evaluation.evaluated(record.rho)
    return {key: value(key, evaluated) for key in dict.fromkeys((*METRICS, *clients, *columns))}


def require_clients(found: Sequence[RunSummary], columns: Sequence[str]) -> None:
    """One sentence where a column is of a client that no run tested: a row of dashes would look like a result."""
    there = list(dict.fromkeys(client for one in found for client in one.clients))
    for key in columns:
        if there and key.startswith(CLIENT) and key.removeprefix(CLIENT) not in there:
            more = f" and {len(there) - NAMED_CLIENTS} more" if len(there) > NAMED_CLIENTS else ""
            known = ", ".join(there[:NAMED_CLIENTS])
            raise AdafedError(f"--columns names {key!r}, and no such client was tested; there are {known}{more}")


def known_mean(values: Sequence[float | None]) -> float | None:
    """None where one of the values is not known."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if len(known) == len(values) and known else None
