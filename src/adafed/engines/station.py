"""What one process needs to do clients' work: the federation, a module, and the two kinds of work.

The same code runs in the main process and in workers, on one torch thread, so that it gives the same bits in both.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from adafed.client_rules.fedcorr.answers import predicted, suspicion
from adafed.config.sections import Config
from adafed.data.base import Federation, Split
from adafed.data.noise import NoisyFederation
from adafed.data.sources import open_federation
from adafed.engines.built_model import fitted
from adafed.errors import AdafedError
from adafed.files import save_tensors
from adafed.rounds.cohort import largest_cohort
from adafed.training.local import (
    Assignment,
    LocalTrainer,
    LocalTraining,
    Measured,
    Predicted,
    Report,
    Samples,
    Suspicion,
    measure,
    summaries,
)
from adafed.training.stacked import group_size, train_together

Part = Literal["train", "validation", "test"]
Labels = tuple[int, ...] | None  # of a client's training samples where FedCorr has corrected them, else None
COHORTS_KEPT = 10  # a client's samples are kept this many cohorts long: memory follows the cohort, not the federation


@dataclass(frozen=True)
class Personal:
    """Where a client's Ditto model is read from (None: it starts from the initial model) and written to."""

    source: str | None
    target: str | None = None


@dataclass(frozen=True)
class TrainUnit:
    """Clients trained in one go: one, or several of equal shape together. `rows` are theirs in the updates."""

    work: tuple[Assignment, ...]
    rows: tuple[int, ...]
    before: bool
    after: bool
    personal: tuple[Personal, ...] = ()
    labels: tuple[Labels, ...] = ()
    suspicion: bool = False


@dataclass(frozen=True)
class MeasureUnit:
    """Clients whose samples of one part are measured in one go, with the global model or each with its own."""

    clients: tuple[int, ...]
    part: Part
    personal: tuple[Personal, ...] = ()
    labels: tuple[Labels, ...] = ()


@dataclass(frozen=True)
class PredictUnit:
    """A client whose training samples the global model answers."""

    client: int
    labels: Labels


class Scores(NamedTuple):
    """A model on one client's samples; no samples, no scores."""

    client: int
    samples: int
    loss: float | None
    accuracy: float | None


class Station:
    """Does units of work. Clients' prepared samples are kept between rounds, within limits."""

    def __init__(self, config: Config, federation: Federation | None = None) -> None:
        seeds = config.derived_seeds()
        self.config = config
        self.federation = open_from(config) if federation is None else noisy(config, federation)
        self.device = _device(config.run.device)
        self.model = fitted(config, self.federation, self.device)
        self.initial = self.model.vector.clone().cpu()
        local = config.local
        self.how = LocalTraining(
            epochs=local.epochs,
            batch_size=None if local.batch_size == "full" else local.batch_size,
            momentum=local.momentum,
            weight_decay=local.weight_decay,
            mu=local.mu,
            loss=local.loss,
            seed=seeds.sampling,
            mixup=local.mixup,
        )
        self.trainer = LocalTrainer(self.model, self.how)
        alone = config.ditto or config.fedcorr or local.mixup
        self.group = 1 if alone else group_size(local.together, self.model)
        self._cache: OrderedDict[tuple[int, Part], Samples] = OrderedDict()
        self._cached = 0
        clients = len(self.federation.ids)
        self._worth_keeping = COHORTS_KEPT * largest_cohort(config.cohort, clients)
        self._all_fit = clients <= self._worth_keeping

    @property
    def width(self) -> int:
        """Numbers in a row: parameters and statistics."""
        return self.model.length + self.model.statistics

    def train(self, unit: TrainUnit, received: torch.Tensor, updates: torch.Tensor) -> list[Report]:
        """Writes the clients' g_k = theta_init - theta into their rows (statistics: the client's own) and reports."""
        received = received.to(self.device)
        data = self._labelled([work.client for work in unit.work], unit.labels)
        befores: list[Measured | None] = [None] * len(data)
        suspected: Suspicion | None = None
        if unit.before:  # all start from the same model: one pass over everybody's samples
            self.model.receive(received)
            befores = self._measured(data)
        if len(data) == 1:
            steps, running = self.trainer.train(received, data[0], unit.work[0])
            self._write(updates[unit.rows[0]], received, self.model.vector)
            runnings = [running]
            if unit.suspicion:
                suspected = self._suspicion(data[0])
        else:
            stacked = Samples(torch.stack([one.inputs for one in data]), torch.stack([one.targets for one in data]))
            trained, steps, means = train_together(self.model, self.how, received, stacked, unit.work)
            self._write_all(updates, unit.rows, received, trained)
            runnings = means.tolist()
        afters: list[Measured | None] = [None] * len(data)
        if unit.after:
            for k, row in enumerate(unit.rows):
                self.model.receive(received)
                self.model.vector[: self.model.length] -= updates[row, : self.model.length].to(self.device)
                self.model.vector[self.model.length :] = updates[row, self.model.length :].to(self.device)
                afters[k] = self._measured([data[k]])[0]
        for work, samples, personal in zip(unit.work, data, unit.personal, strict=False):
            self._personalise(work, samples, personal, received)
        return [
            Report(work.client, len(samples), steps, running, before, after, suspected)
            for work, samples, running, before, after in zip(unit.work, data, runnings, befores, afters, strict=True)
        ]

    def measure(self, unit: MeasureUnit, parameters: torch.Tensor) -> list[Scores]:
        if unit.part == "train":
            data = self._labelled(unit.clients, unit.labels)
        else:
            data = [self._samples(client, unit.part) for client in unit.clients]
        if unit.personal:
            measured: list[Measured | None] = []
            for samples, personal in zip(data, unit.personal, strict=True):
                self.model.receive(self._personal_model(personal))
                measured += self._measured([samples])
        else:
            self.model.receive(parameters)
            measured = self._measured(data)
        return [
            Scores(client, len(samples), means.loss if means else None, means.accuracy if means else None)
            for client, samples, means in zip(unit.clients, data, measured, strict=True)
        ]

    def predict(self, unit: PredictUnit, parameters: torch.Tensor) -> list[Predicted]:
        self.model.receive(parameters)
        (data,) = self._labelled((unit.client,), (unit.labels,))
        return [predicted(self.model, unit.client, data)]

    def _suspicion(self, data: Samples) -> Suspicion:
        assert self.config.fedcorr is not None
        return suspicion(self.model, data, self.config.fedcorr.neighbours)

    def _measured(self, data: Sequence[Samples]) -> list[Measured | None]:
        """Every client's loss and accuracy, from batches that run across clients."""
        inputs = torch.cat([samples.inputs for samples in data]) if len(data) > 1 else data[0].inputs
        targets = torch.cat([samples.targets for samples in data]) if len(data) > 1 else data[0].targets
        scores = measure(self.model, inputs, targets, self.how.loss)
        return summaries(scores, [len(samples) for samples in data])

    def _write(self, row: torch.Tensor, received: torch.Tensor, trained: torch.Tensor) -> None:
        length = self.model.length
        if self.device.type == "cpu":
            torch.sub(received[:length], trained[:length], out=row[:length])
        else:
            row[:length] = received[:length] - trained[:length]
        if self.model.statistics:
            row[length:] = trained[length:]

    def _write_all(
        self, updates: torch.Tensor, rows: tuple[int, ...], received: torch.Tensor, trained: list[torch.Tensor]
    ) -> None:
        """The updates of clients trained together, parameter by parameter."""
        together = rows == tuple(range(rows[0], rows[0] + len(rows)))
        where = slice(rows[0], rows[-1] + 1) if together else torch.tensor(rows)
        start = 0
        for old, new in zip(self.model.views(received), trained, strict=True):
            stop = start + old.numel()
            updates[where, start:stop] = (old - new).flatten(1).to(updates.device)
            start = stop

    def _personalise(self, work: Assignment, samples: Samples, personal: Personal, received: torch.Tensor) -> None:
        ditto = self.config.ditto
        assert ditto is not None
        assert personal.target is not None
        own = self._personal_model(personal)
        lr = work.lr if ditto.lr is None else ditto.lr
        moved = self.trainer.personalise(own, received, samples, work, ditto.strength, lr)
        save_tensors(Path(personal.target), {"personal": moved.cpu()})

    def _personal_model(self, personal: Personal) -> torch.Tensor:
        try:
            own = self.initial if personal.source is None else load_file(personal.source)["personal"]
        except (OSError, SafetensorError, KeyError):
            raise AdafedError(
                f"{personal.source} is missing or damaged: restore it, or begin again in another directory"
            ) from None
        return own.to(self.device)

    def _labelled(self, clients: Sequence[int], labels: tuple[Labels, ...]) -> list[Samples]:
        """Clients' training samples, with corrected labels where there are any."""
        data = [self._samples(client, "train") for client in clients]
        if self.how.mixup and not data[0].inputs.is_floating_point():
            raise AdafedError(
                f"local.mixup = {self.how.mixup} blends inputs, and those of {self.federation.name} are letters or "
                "words; it must be 0 there"
            )
        for k, own in enumerate(labels):
            if own is not None:
                data[k] = Samples(data[k].inputs, torch.tensor(own, dtype=torch.int64, device=self.device))
        return data

    def _samples(self, client: int, part: Part) -> Samples:
        key = (client, part)
        if key in self._cache:
            self._cache.move_to_end(key)
            return self._cache[key]
        split: Split = getattr(self.federation.client(client), part)
        samples = Samples(
            self.federation.normalisation(split.inputs).to(self.device),
            torch.from_numpy(split.targets.copy()).to(self.device),
        )
        if part != "train" and not self._all_fit:
            return samples  # everyone is measured in turn: it would be gone before it is asked for again
        self._cache[key] = samples
        self._cached += _bytes(samples)
        while len(self._cache) > 1 and (
            self._cached > self.config.run.cache_mb * 2**20
            or (len(self._cache) > self._worth_keeping and not self._all_fit)
        ):
            _, oldest = self._cache.popitem(last=False)
            self._cached -= _bytes(oldest)
        return samples


def _device(name: str) -> torch.device:
    try:
        device = torch.device(name)
        torch.zeros(1, device=device).item()  # "meta" has no numbers
    except (RuntimeError, AssertionError, NotImplementedError):
        raise AdafedError(f"run.device = {name!r}: it must be a device that torch finds here, such as 'cpu'") from None
    return device


def _bytes(samples: Samples) -> int:
    return samples.inputs.nbytes + samples.targets.nbytes


def open_from(config: Config) -> Federation:
    """The federation a configuration asks for."""
    partition = None if config.partition is None else config.partition.model_dump()
    seed = config.derived_seeds().data
    return noisy(config, open_federation(config.data.model_dump(), partition, config.split.model_dump(), seed=seed))


def noisy(config: Config, federation: Federation) -> Federation:
    """With wrong labels, if the configuration asks for them."""
    if config.noise is None:
        return federation
    how = config.noise
    return NoisyFederation(federation, clients=how.clients, level=how.level, seed=config.derived_seeds().data)


@contextmanager
def one_thread() -> Iterator[None]:
    """Work is done on one torch thread in every process: more would split sums differently."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
