"""The scalars of a run, live, to TensorBoard and MLflow where the configuration's [track] says so (extras).

They are the numbers of the page's curves. A place that cannot be reached is told before the first round; one that is
lost on the way is told once, and the run goes on without it.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, Protocol

from adafed.config.configuration import Config
from adafed.errors import AdafedError
from adafed.files import alone, parsed, write_whole
from adafed.rounds.records import RoundRecord
from adafed.runs.summary import metrics

log = logging.getLogger("adafed")
BY_ROUND = ("rho", "mean_decrease", "norm", "mean_norm", "condition", "negative")
BY_EVALUATION = ("mean", "std", "floor", "worst_10", "best_10", "jain", "loss_std")
REMEMBERED = "track.json"  # in the run directory: the run's name in MLflow, so that a resumed run goes on there


class Place(Protocol):
    def add(self, scalars: dict[str, float], round: int) -> None: ...
    def close(self, whole: bool) -> None: ...


class Tracking:
    """All places of one run."""

    def __init__(self, places: dict[str, Place]) -> None:
        self._places = places

    def add(self, record: RoundRecord) -> None:
        if not self._places:
            return
        found = scalars(record)
        for name, place in list(self._places.items()):
            try:
                place.add(found, record.round)
            except Exception as error:  # whatever another program's library raises is no reason to lose the run
                log.warning("track.%s: %s; the run goes on without it", name, _line(error))
                del self._places[name]

    def close(self, whole: bool = True) -> None:
        for name, place in self._places.items():
            try:
                place.close(whole)
            except Exception as error:
                log.warning("track.%s: %s", name, _line(error))
        self._places = {}


def scalars(record: RoundRecord) -> dict[str, float]:
    """By name: what is known of every round, and after an evaluation the measures of the table."""
    found: dict[str, float | None] = {f"round/{key}": getattr(record, key) for key in BY_ROUND}
    used = [one.coefficient for one in record.participants if one.coefficient is not None and not one.dropped]
    if used:
        found |= {"round/coefficient_min": min(used), "round/coefficient_max": max(used)}
    found["round/dropped"] = sum(one.dropped is not None for one in record.participants)
    if record.evaluation() is not None:
        measured = metrics(record)
        found |= {f"test/{key}": measured[key] for key in BY_EVALUATION}
    return {key: float(value) for key, value in found.items() if value is not None}


def tracking(config: Config, directory: Path | None, after: int) -> Tracking:
    """Opened where the configuration asks for it; `after` is the round from which the run goes on."""
    asked = config.track
    places: dict[str, Place] = {}
    name = "/".join(directory.absolute().parts[-2:]) if directory else f"{config.label}, seed {config.seed}"
    if asked is not None and asked.tensorboard is not None:
        board = Path(asked.tensorboard)
        own = board / (_from_beside(board, directory) if directory else Path(config.name, name))
        places["tensorboard"] = _opened("tensorboard", lambda: TensorBoard(own, after))
    if asked is not None and asked.mlflow is not None:
        places["mlflow"] = _opened("mlflow", lambda: MLflow(asked.mlflow or "", config, name, directory))
    return Tracking(places)


def _from_beside(folder: Path, directory: Path) -> Path:
    """A run directory's path from where the folder lies, or else its whole path: runs of two studies have two, and a
    resumed run has the same."""
    board, run = (Path(os.path.abspath(path)) for path in (folder, directory))
    return run.relative_to(board.parent if run.is_relative_to(board.parent) else run.anchor)


def _opened(key: str, make: Callable[[], Place]) -> Place:
    try:
        with _quiet():
            return make()
    except ModuleNotFoundError:
        raise AdafedError(f"track.{key} needs a package that is not here: pip install 'adafed[{key}]'") from None
    except Exception as error:
        raise AdafedError(f"track.{key} cannot be opened: {_line(error)}") from None


class TensorBoard:
    """A folder of its own for every run; rounds that are done again take the place of what was there."""

    def __init__(self, folder: Path, after: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer: Any = SummaryWriter(str(folder), purge_step=after + 1 if after else None, flush_secs=5)

    def add(self, scalars: dict[str, float], round: int) -> None:
        with _quiet():
            for key, value in scalars.items():
                self._writer.add_scalar(key, value, round)

    def close(self, whole: bool) -> None:
        self._writer.close()


class MLflow:
    """One MLflow run in the experiment that is called as the configuration is."""

    def __init__(self, address: str, config: Config, name: str, directory: Path | None) -> None:
        from mlflow.tracking import MlflowClient

        known = self._known(address, directory)
        with _one_opens(address):
            self._client: Any = MlflowClient(tracking_uri=address)
            if known is None:
                self._run = self._client.create_run(self._experiment(config.name), run_name=name).info.run_id
            else:
                self._run = known
                self._client.update_run(known, status="RUNNING")
        if known is None:
            for key, value in _flat(config.to_dict()).items():
                self._client.log_param(self._run, key, str(value)[:500])
            if directory is not None:
                told = {"mlflow": {"address": address, "run": self._run}}
                write_whole(directory / REMEMBERED, json.dumps(told).encode())

    def _experiment(self, name: str) -> str:
        there = self._client.get_experiment_by_name(name)
        if there is None:
            try:
                return str(self._client.create_experiment(name))
            except Exception:  # a run on another machine may have made it since
                there = self._client.get_experiment_by_name(name)
                if there is None:
                    raise
        return str(there.experiment_id)

    def _known(self, address: str, directory: Path | None) -> str | None:
        """The run that a run directory has begun there already."""
        try:
            told = parsed((directory / REMEMBERED).read_bytes())["mlflow"] if directory else {}
            return str(told["run"]) if told.get("address") == address else None
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None

    def add(self, scalars: dict[str, float], round: int) -> None:
        from mlflow.entities import Metric

        now = int(1000 * time.time())
        with _quiet():
            told = [Metric(key, value, now, round) for key, value in scalars.items()]
            self._client.log_batch(self._run, metrics=told)

    def close(self, whole: bool) -> None:
        with _quiet():
            self._client.set_terminated(self._run, status="FINISHED" if whole else "KILLED")


def _one_opens(address: str) -> AbstractContextManager[None]:
    """Two that make the tables of a new database at once leave one that nobody can open; a server sees to its own."""
    kind, _, place = address.partition("://")
    if kind in ("http", "https") or kind.startswith("databricks"):
        return nullcontext()
    if kind.startswith("sqlite") and place.startswith("/"):
        file = Path(place.partition("?")[0][1:]).resolve()
        file.parent.mkdir(parents=True, exist_ok=True)  # as MLflow does
        return alone(file.with_name(f".{file.name}.lock"))
    named = hashlib.sha256(address.encode()).hexdigest()[:24]
    return alone(Path(tempfile.gettempdir()) / f"adafed-mlflow-{named}.lock")


@contextmanager
def _quiet() -> Iterator[None]:
    """What another program's library warns of in its own code is not the user's to mend."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _line(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]


def _flat(content: dict[str, Any], before: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in content.items():
        found |= _flat(value, f"{before}{key}.") if isinstance(value, dict) else {f"{before}{key}": value}
    return found
