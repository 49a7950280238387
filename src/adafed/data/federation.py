"""A federation cut out of one data set: each client is three lists of indices, read when asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from adafed.data import partition as partitioners
from adafed.data import split as splits
from adafed.data.base import ClientData, Dataset, Indices, Normalisation, Split, sha256
from adafed.data.split import ClientIndices
from adafed.errors import AdafedError

OWNING, SPLITTING, LIMITING = 105, 106, 108  # streams of random numbers under one seed
POOLS = ("all", "train")


class IndexedFederation:
    """Clients that own samples of `dataset`, whose rows are read (from disk, if it is mapped) by `client`."""

    def __init__(self, dataset: Dataset, parts: Sequence[ClientIndices], ids: Sequence[str] | None = None) -> None:
        if not parts:
            raise AdafedError("a federation needs at least one client.")
        names = tuple(str(k) for k in range(len(parts))) if ids is None else tuple(ids)
        if len(names) != len(parts) or len(set(names)) != len(parts):
            raise AdafedError(f"a federation of {len(parts)} clients needs as many different ids.")
        owners = np.zeros(len(dataset), dtype=np.int64)
        for indices in _roles(parts):
            if len(indices) and (indices.min() < 0 or indices.max() >= len(dataset)):
                raise AdafedError(f"a client owns a sample outside the {len(dataset)} of {dataset.name}.")
            np.add.at(owners, indices, 1)
        if owners.max(initial=0) > 1:
            raise AdafedError(f"sample {int(owners.argmax())} of {dataset.name} has two owners or roles.")
        self.dataset = dataset
        self.parts = tuple(parts)
        self._ids = names

    @property
    def name(self) -> str:
        return self.dataset.name

    @property
    def ids(self) -> tuple[str, ...]:
        return self._ids

    @property
    def classes(self) -> int:
        return self.dataset.classes

    @property
    def input_shape(self) -> tuple[int, ...]:
        return tuple(self.dataset.inputs.shape[1:])

    @property
    def normalisation(self) -> Normalisation:
        return self.dataset.normalisation

    @property
    def train_sizes(self) -> npt.NDArray[np.int64]:
        return np.array([len(part.train) for part in self.parts], dtype=np.int64)

    @cached_property
    def checksum(self) -> str:
        """Of the data and of who owns which sample."""
        return sha256(self.dataset.checksum, *self._ids, *_roles(self.parts))

    def client(self, index: int) -> ClientData:
        part = self.parts[index]
        return ClientData(self._take(part.train), self._take(part.validation), self._take(part.test))

    def train_labels(self, index: int) -> npt.NDArray[np.int64]:
        return np.asarray(self.dataset.targets[self.parts[index].train])

    def _take(self, indices: Indices) -> Split:
        return Split(np.asarray(self.dataset.inputs[indices]), np.asarray(self.dataset.targets[indices]))


def federate(
    dataset: Dataset,
    partition: str,
    options: Mapping[str, Any],
    *,
    seed: int,
    mode: str = "within",
    validation: float = 0.1,
    test: float = 0.1,
    stratified: bool = False,
    pool: str = "all",
    limit: int | None = None,
) -> IndexedFederation:
    """Partition a data set over clients and split each client's samples.

    `partition` and `options` are the configuration's [partition] table; the rest is its [split] table. With
    mode "within", `pool` = "train" sets the publisher's test part aside and "all" shares it out like the
    rest. With mode "published" the train part is shared out, and `test` has no say: the test part is the
    test. `limit` caps what a client was dealt, before the split; the rest is left out.
    """
    if mode not in splits.MODES:
        raise AdafedError(f"split.mode = {mode!r} is unknown: choose one of {', '.join(splits.MODES)}.")
    if pool not in POOLS:
        raise AdafedError(f"split.pool = {pool!r} is unknown: choose one of {', '.join(POOLS)}.")
    if mode == "published" and dataset.is_test is None:
        raise AdafedError(f"split.mode = 'published' needs a test part: {dataset.name} has none, use 'within'.")
    if mode != "published" and dataset.wrong_labels:
        raise AdafedError(
            f"split.mode = {mode!r} would test on training samples, and some labels of {dataset.name} are wrong there; "
            "use 'published', which tests on its test part."
        )
    samples = np.arange(len(dataset))
    if dataset.is_test is not None and (mode == "published" or pool == "train"):
        samples = np.flatnonzero(~dataset.is_test)
    groups = None if dataset.groups is None else dataset.groups[samples]
    # Two streams, so that the split does not change who owns what.
    seed = partitioners.checked_seed(seed)
    owning, splitting = (np.random.default_rng([seed, 0, stream]) for stream in (OWNING, SPLITTING))
    owned = partitioners.partition(partition, dataset.targets[samples], groups, options, seed=owning)
    parts = [samples[part] for part in owned]
    if limit is not None:
        limiting = np.random.default_rng([seed, 0, LIMITING])
        parts = [np.sort(limiting.permutation(part)[:limit]) for part in parts]
    natural = dataset.groups if partition == "natural" else None
    if mode == "within":
        clients = splits.within(
            parts, dataset.targets, validation=validation, test=test, stratified=stratified, seed=splitting
        )
    else:
        clients = splits.published(
            parts,
            dataset.targets,
            dataset.is_test,
            groups=natural,
            validation=validation,
            stratified=stratified,
            seed=splitting,
        )
    ids = None if natural is None else [_owner(dataset, int(natural[part[0]])) for part in parts]
    return IndexedFederation(dataset, clients, ids)


def _owner(dataset: Dataset, group: int) -> str:
    return str(group) if dataset.group_names is None else dataset.group_names[group]


def _roles(parts: Sequence[ClientIndices]) -> list[Indices]:
    return [indices for part in parts for indices in (part.train, part.validation, part.test)]
