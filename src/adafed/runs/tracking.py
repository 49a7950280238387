"""The scalars of a run, live, to TensorBoard and MLflow where the configuration's [track] says so (extras).

They are the numbers of the page's curves. A place that cannot be reached is told before the first round; one that is
lost on the way is told once, and the run goes on without it.
"""

from __future__ import annotations

import json
import logging
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from adafed.config.configuration import Config
from adafed.errors import AdafedError
from adafed.files import parsed, write_whole
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
        places["tensorboard"] = _opened("tensorboard", lambda: TensorBoard(Path(asked.tensorboard or ""), name, after))
    if asked is not None and asked.mlflow is not None:
        places["mlflow"] = _opened("mlflow", lambda: MLflow(asked.mlflow or "", config, name, directory))
    return Tracking(places)


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

    def __init__(self, folder: Path, name: str, after: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer: Any = SummaryWriter(str(folder / name), purge_step=after + 1 if after else None, flush_secs=5)

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

        self._client: Any = MlflowClient(tracking_uri=address)
        self._run = self._known(address, directory)
        if self._run is None:
            there = self._client.get_experiment_by_name(config.name)
            experiment = there.experiment_id if there else self._client.create_experiment(config.name)
            self._run = self._client.create_run(experiment, run_name=name).info.run_id
            for key, value in _flat(config.to_dict()).items():
                self._client.log_param(self._run, key, str(value)[:500])
            if directory is not None:
                told = {"mlflow": {"address": address, "run": self._run}}
                write_whole(directory / REMEMBERED, json.dumps(told).encode())
        else:
            self._client.update_run(self._run, status="RUNNING")

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
