"""What one process needs to do clients' work: the federation, a module, and the kinds of work.

The same code runs in the main process, in workers and on Flower's nodes, on one torch thread, so that it gives the same
bits in all.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch

from adafed.attacks import liars
from adafed.attacks.labels import FlippedFederation, FlippedLabels
from adafed.client_rules.base import Told
from adafed.config.configuration import Config
from adafed.data.base import Federation, Split
from adafed.data.framed import FramedFederation
from adafed.data.noise import NoisyFederation
from adafed.data.sources import open_federation, require_usable_ids
from adafed.engines.built_model import fitted, least_trained
from adafed.engines.units import AskUnit, MeasureUnit, Report, RuleOrders, TrainUnit
from adafed.engines.visiting import Visiting
from adafed.errors import AdafedError
from adafed.rounds.cohort import largest_cohort
from adafed.rounds.loop import Part
from adafed.rounds.records import Scores
from adafed.training.augmented import Augmentation, augmented
from adafed.training.local import Assignment, LocalTrainer, LocalTraining, Samples
from adafed.training.measuring import Measured, measure, summaries
from adafed.training.stacked import group_size, train_together

COHORTS_KEPT = 10  # a client's samples are kept this many cohorts long: memory follows the cohort, not the federation


class Station:
    """Does units of work. Clients' prepared samples are kept between rounds, within limits."""

    def __init__(self, config: Config, federation: Federation | None = None) -> None:
        seeds = config.derived_seeds()
        self.config = config
        self.federation = open_from(config) if federation is None else adapted(config, federation)
        self.augmentation = None if config.augment is None else Augmentation(**config.augment.model_dump())
        if self.augmentation is not None:
            self.augmentation.require_images(self.federation.input_shape, config.data.options.get("standardise"))
        self.device = _device(config.run.device)
        self.model = fitted(config, self.federation, self.device)
        self.initial = self.model.vector.clone().cpu()
        local = config.local
        self.how = LocalTraining(
            epochs=local.epochs,
            batch_size=None if local.batch_size == "full" else local.batch_size,
            momentum=local.momentum,
            weight_decay=local.weight_decay,
            loss=local.loss,
            seed=seeds.sampling,
            least=least_trained(config, self.model, self.federation),
        )
        self.trainer = LocalTrainer(self.model, self.how)
        self.visiting = Visiting(config.parts.client_rules, self.model, self.trainer, self.initial)
        alike = self.visiting.stacks and self.augmentation is None
        self.group = group_size(local.together, self.model) if alike else 1
        self._cache: OrderedDict[tuple[int, Part], Samples] = OrderedDict()
        self._cached = 0
        clients = len(self.federation.ids)
        self._worth_keeping = COHORTS_KEPT * largest_cohort(config.cohort, clients)
        self._all_fit = clients <= self._worth_keeping

    def train(self, unit: TrainUnit, received: torch.Tensor, updates: torch.Tensor) -> list[Report]:
        """Writes the clients' g_k = theta_init - theta into their rows (statistics: the client's own) and reports."""
        received = received.to(self.device)
        theta = received[: self.visiting.numbers]
        data = self._trained_on([work.client for work in unit.work], unit.orders)
        befores: list[Measured | None] = [None] * len(data)
        told: dict[str, Told] = {}
        if unit.before:  # all start from the same model: one pass over everybody's samples
            self.model.receive(theta)
            befores = self._measured(data)
        held_out = self._held_out(unit, theta, data)
        if len(data) == 1:
            kept, orders = unit.kept[0] if unit.kept else None, unit.orders[0] if unit.orders else {}
            row = updates[unit.rows[0]]
            steps, running, told = self.visiting.trained(unit.work[0], data[0], received, row, kept, orders)
            runnings = [running]
        else:
            stacked = Samples(torch.stack([one.inputs for one in data]), torch.stack([one.targets for one in data]))
            pull = self.visiting.pull(unit.work[0], data[0], received)
            trained, steps, means = train_together(self.model, self.how, theta, stacked, unit.work, pull)
            self._write_all(updates, unit.rows, theta, trained)
            runnings = means.tolist()
        afters: list[Measured | None] = [None] * len(data)
        if unit.after:
            for k, place in enumerate(unit.rows):
                self.model.receive(theta)
                self.model.vector[: self.model.length] -= updates[place, : self.model.length].to(self.device)
                self.model.vector[self.model.length :] = updates[place, self.model.length : self.visiting.numbers].to(
                    self.device
                )
                afters[k] = self._measured([data[k]])[0]
        return [
            Report(work.client, len(samples), steps, runnings[k], befores[k], afters[k], told, held_out[k])
            for k, (work, samples) in enumerate(zip(unit.work, data, strict=True))
        ]

    def _held_out(self, unit: TrainUnit, theta: torch.Tensor, data: Sequence[Samples]) -> list[float | None]:
        """The loss of the received model on samples that nobody trains on, where the rule is told that; a client that
        has none tells the loss on those it trains on."""
        if self.config.server.loss != "validation":
            return [None] * len(data)
        parts = [self._samples(work.client, "validation") for work in unit.work]
        self.model.receive(theta)
        measured = self._measured([part if len(part) else own for part, own in zip(parts, data, strict=True)])
        return [None if one is None else one.loss for one in measured]

    def measure(self, unit: MeasureUnit, parameters: torch.Tensor) -> list[Scores]:
        if unit.part == "train":
            data = self._trained_on(unit.clients, unit.orders)
        else:
            data = [self._samples(client, unit.part) for client in unit.clients]
        if unit.personal:
            measured: list[Measured | None] = []
            for k, samples in enumerate(data):
                own = self._last_model(unit, k, parameters) if unit.last else self.visiting.personal_model(unit.kept[k])
                self.model.receive(own.to(self.device))
                measured += self._measured([samples])
        else:
            self.model.receive(parameters[: self.visiting.numbers])
            measured = self._measured(data)
        return [
            Scores(client, len(samples), means.loss if means else None, means.accuracy if means else None)
            for client, samples, means in zip(unit.clients, data, measured, strict=True)
        ]

    def _last_model(self, unit: MeasureUnit, k: int, parameters: torch.Tensor) -> torch.Tensor:
        """Made in the round after the last, so to say: at the last one's rate, with batches of its own."""
        rounds, local = self.config.rounds, self.config.local
        work = Assignment(unit.clients[k], rounds + 1, local.rate(rounds))
        (data,) = self._trained_on(unit.clients[k : k + 1], unit.orders[k : k + 1])
        received = parameters[: self.visiting.numbers].to(self.device)
        return self.visiting.last_model(work, data, received, unit.kept[k], unit.orders[k])

    def ask(self, unit: AskUnit, parameters: torch.Tensor) -> Told:
        """What the client rule of that name answers, with the global model."""
        self.model.receive(parameters[: self.visiting.numbers])
        (rule,) = (rule for rule in self.visiting.rules if rule.name == unit.rule)
        (data,) = self._trained_on((unit.client,), (unit.orders,))
        return rule.answer(self.model, data)

    def _trained_on(self, clients: Sequence[int], orders: Sequence[RuleOrders]) -> list[Samples]:
        """Clients' training samples as their rules want them."""
        data = [self._samples(client, "train") for client in clients]
        if not self.visiting.rules:
            return data
        return [self.visiting.samples(one, own) for one, own in zip(data, orders or [{}] * len(data), strict=True)]

    def _measured(self, data: Sequence[Samples]) -> list[Measured | None]:
        """Every client's loss and accuracy, from batches that run across clients."""
        inputs = torch.cat([samples.inputs for samples in data]) if len(data) > 1 else data[0].inputs
        targets = torch.cat([samples.targets for samples in data]) if len(data) > 1 else data[0].targets
        scores = measure(self.model, inputs, targets, self.how.loss)
        return summaries(scores, [len(samples) for samples in data])

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

    def _samples(self, client: int, part: Part) -> Samples:
        key = (client, part)
        if key in self._cache:
            self._cache.move_to_end(key)
            return self._cache[key]
        samples = self._prepared(client, part)
        if part != "train" and not self._all_fit:
            return samples  # everyone is measured in turn: it would be gone before it is asked for again
        self._cache[key] = samples
        self._cached += samples.nbytes
        while len(self._cache) > 1 and (
            self._cached > self.config.run.cache_mb * 2**20
            or (len(self._cache) > self._worth_keeping and not self._all_fit)
        ):
            _, oldest = self._cache.popitem(last=False)
            self._cached -= oldest.nbytes
        return samples

    def _prepared(self, client: int, part: Part) -> Samples:
        federation, how = self.federation, self.augmentation if part == "train" else None
        if how is not None and isinstance(federation, FramedFederation):
            federation = federation.federation  # whose images are whole
        split: Split = getattr(federation.client(client), part)
        inputs = federation.normalisation(split.inputs).to(self.device)
        targets = torch.from_numpy(split.targets.copy()).to(self.device)
        if how is None:
            return Samples(inputs, targets)
        black = federation.normalisation(np.zeros((1, inputs.shape[1], 1, 1), split.inputs.dtype)).to(self.device)
        return augmented(how, inputs, black, targets)


def _device(name: str) -> torch.device:
    try:
        device = torch.device(name)
        torch.zeros(1, device=device).item()  # "meta" has no numbers
    except (RuntimeError, AssertionError, NotImplementedError):
        raise AdafedError(f"run.device = {name!r}: it must be a device that torch finds here, such as 'cpu'") from None
    return device


def open_from(config: Config) -> Federation:
    """The federation a configuration asks for."""
    partition = None if config.partition is None else config.partition.model_dump()
    seed = config.derived_seeds().data
    return adapted(config, open_federation(config.data.model_dump(), partition, config.split.model_dump(), seed=seed))


def adapted(config: Config, federation: Federation) -> Federation:
    """With wrong labels (noise, and the flipped ones of liars), and with the middle of each image, if the configuration
    asks for them."""
    require_usable_ids(federation)
    how = config.noise
    if how is not None:
        seed = config.derived_seeds().data
        federation = NoisyFederation(federation, clients=how.clients, level=how.level, seed=seed)
    if own := [lie.name for lie in config.parts.lies if lie.in_data and not isinstance(lie, FlippedLabels)]:
        raise AdafedError(f"attack.use names {own[0]!r} with in_data, which is of flipped labels alone; leave that out")
    if any(lie.in_data for lie in config.parts.lies):
        federation = FlippedFederation(federation, liars_of(config, federation.ids))
    crop = None if config.augment is None else config.augment.crop
    return federation if crop is None else FramedFederation(federation, crop)


def liars_of(config: Config, ids: Sequence[str]) -> frozenset[int]:
    """Who lies; nobody where there is no [attack]."""
    how = config.attack
    return frozenset() if how is None else liars(ids, how.clients, how.share, config.derived_seeds().sampling)


@contextmanager
def one_thread() -> Iterator[None]:
    """Work is done on one torch thread in every process: more would split sums differently."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
