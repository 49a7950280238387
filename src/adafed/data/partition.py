"""Who owns which sample: the partitioners, from labels or natural owners to an array of indices a client.

The arrays are sorted and disjoint. Together they hold every sample, except where a partitioner says
otherwise; `left_out` tells which samples no client owns. The same seed gives the same partition.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np
import numpy.typing as npt

from adafed.data.base import Indices
from adafed.errors import AdafedError
from adafed.imported import own_code
from adafed.registry import Registry

Seed = int | np.random.Generator
PARTITIONS: Registry[Callable[..., list[Indices]]] = Registry(
    "partition", "partition", leading=1, given=("seed", "groups")
)
ATTEMPTS = 20  # draws of the Dirichlet proportions before clients that are too small are topped up


def generator(seed: Seed) -> np.random.Generator:
    """A generator passes unchanged, so that callers may chain draws; a number starts one."""
    if isinstance(seed, np.random.Generator):
        return seed
    return np.random.default_rng(checked_seed(seed))


def checked_seed(seed: int) -> int:
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise AdafedError(f"seed = {seed!r} must be a whole number, zero or more.")
    return int(seed)


@PARTITIONS.register("iid")
def iid(targets: npt.ArrayLike, *, clients: int, seed: Seed) -> list[Indices]:
    """A shuffle cut into equal parts; sizes differ by at most one."""
    samples = len(_labels(targets))
    _enough_samples(clients, samples)
    return [np.sort(part) for part in np.array_split(generator(seed).permutation(samples), clients)]


@PARTITIONS.register("dirichlet")
def dirichlet(
    targets: npt.ArrayLike, *, clients: int, beta: float = 0.5, minimum: int = 10, seed: Seed
) -> list[Indices]:
    """Each class is cut over the clients in proportions drawn from Dirichlet(beta, ..., beta).

    Small beta gives each client few classes. The proportions are drawn again while a client has fewer than
    `minimum` samples; after 20 draws the largest clients give samples of their commonest class to the
    smallest.
    """
    labels, random = _labels(targets), generator(seed)
    _enough_samples(clients, len(labels))
    if isinstance(beta, bool) or not isinstance(beta, int | float) or not 1e-3 <= beta <= 1e6:
        raise AdafedError(f"partition.beta = {beta!r} must be a number between 0.001 and 1000000.")
    _whole("minimum", minimum, least=0)
    if clients * minimum > len(labels):
        raise AdafedError(
            f"partition.minimum = {minimum} is too many for {clients} clients and {len(labels)} samples: "
            f"at most {len(labels) // clients} each."
        )
    pools = [random.permutation(np.flatnonzero(labels == label)) for label in np.unique(labels)]
    sizes = np.array([len(pool) for pool in pools])
    for _ in range(ATTEMPTS):
        cuts = np.cumsum(random.dirichlet(np.full(clients, beta), size=len(pools)), axis=1)
        ends = np.floor(cuts * sizes[:, None] + 1e-9).astype(np.int64)
        ends[:, -1] = sizes
        counts = np.diff(ends, axis=1, prepend=0)
        if counts.sum(axis=0).min() >= minimum:
            break
    _top_up(counts, minimum)
    return _deal(pools, counts)


@PARTITIONS.register("shards")
def shards(targets: npt.ArrayLike, *, clients: int, shards: int = 2, seed: Seed) -> list[Indices]:
    """Samples sorted by label and cut into clients * shards equal runs; each client is dealt `shards` runs."""
    labels, random = _labels(targets), generator(seed)
    _enough_samples(clients, len(labels))
    _whole("shards", shards, least=1)
    runs = clients * shards
    if runs > len(labels):
        raise AdafedError(
            f"partition.shards = {shards} for {clients} clients needs {runs} samples: there are {len(labels)}."
        )
    order = random.permutation(len(labels))
    order = order[np.argsort(labels[order], kind="stable")]
    pieces = np.array_split(order, runs)
    dealt = random.permutation(runs).reshape(clients, shards)
    return [np.sort(np.concatenate([pieces[run] for run in hand])) for hand in dealt]


@PARTITIONS.register("pathological")
def pathological(targets: npt.ArrayLike, *, clients: int, classes: int = 2, seed: Seed) -> list[Indices]:
    """Each client has exactly `classes` classes; clients that share a class share its samples equally.

    Classes are dealt evenly. With clients * classes below the number of classes, some classes are left out.
    """
    labels, random = _labels(targets), generator(seed)
    _enough_samples(clients, len(labels))
    _whole("classes", classes, least=1)
    pools = [random.permutation(np.flatnonzero(labels == label)) for label in np.unique(labels)]
    if classes > len(pools):
        raise AdafedError(f"partition.classes = {classes}, but the data have only {len(pools)} classes.")
    owners: list[list[int]] = [[] for _ in pools]
    for client in range(clients):
        # The classes with the fewest owners so far; a random key breaks ties.
        owned = np.array([len(owner) for owner in owners])
        for label in np.lexsort((random.random(len(pools)), owned))[:classes]:
            owners[label].append(client)
    counts = np.zeros((len(pools), clients), dtype=np.int64)
    for label, owner in enumerate(owners):
        if len(owner) > len(pools[label]):
            raise AdafedError(
                f"partition.clients = {clients} gives class {label} to {len(owner)} clients, "
                f"but it has only {len(pools[label])} samples."
            )
        if owner:
            counts[label, owner] = [len(part) for part in np.array_split(pools[label], len(owner))]
    return _deal(pools, counts)


@PARTITIONS.register("bernoulli")
def bernoulli(
    targets: npt.ArrayLike, *, clients: int, probability: float = 0.7, alpha: float = 10.0, minimum: int = 2, seed: Seed
) -> list[Indices]:
    """FedCorr's partition: a client has each class with `probability`; its owners share a class by Dirichlet(alpha).

    A client that drew no class gets one at random; clients below `minimum` samples are topped up from the largest.
    """
    labels, random = _labels(targets), generator(seed)
    _enough_samples(clients, len(labels))
    _whole("minimum", minimum, least=0)
    for option, value, least, most in (("probability", probability, 1e-6, 1.0), ("alpha", alpha, 1e-3, 1e6)):
        if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
            raise AdafedError(f"partition.{option} = {value!r} must be a number between {least:g} and {most:g}.")
    if clients * minimum > len(labels):
        raise AdafedError(f"partition.minimum = {minimum} is too many for {clients} clients, {len(labels)} samples.")
    pools = [random.permutation(np.flatnonzero(labels == label)) for label in np.unique(labels)]
    owns = random.random((len(pools), clients)) < probability
    for client in np.flatnonzero(~owns.any(axis=0)):
        owns[random.integers(len(pools)), client] = True
    for orphan in np.flatnonzero(~owns.any(axis=1)):
        owns[orphan, random.integers(clients)] = True
    counts = np.zeros((len(pools), clients), dtype=np.int64)
    for label, owners in enumerate(owns):
        counts[label, owners] = proportional(len(pools[label]), random.dirichlet(np.full(owners.sum(), alpha)))
    _top_up(counts, minimum)
    return _deal(pools, counts)


@PARTITIONS.register("natural")
def natural(
    groups: npt.ArrayLike | None,
    *,
    clients: int | None = None,
    minimum: int = 1,
    large: int | None = None,
    large_minimum: int | None = None,
    seed: Seed,
) -> list[Indices]:
    """One client for each natural owner (writer, role), in the order of their ids.

    Owners with fewer than `minimum` samples are left out; `clients` keeps that many of the rest, drawn by the
    seed. With `large`, so many of them have at least `large_minimum` samples and the others fewer: those that
    clients = large, minimum = large_minimum would draw by the same seed, and others to them.
    """
    if groups is None:
        raise AdafedError("partition.name = 'natural' needs data with natural owners: this set has none.")
    owners = _labels(groups)
    _whole("minimum", minimum, least=1)
    order = np.argsort(owners, kind="stable")
    _, starts = np.unique(owners[order], return_index=True)
    parts = [part for part in np.split(order, starts[1:]) if len(part) >= minimum]
    if not parts:
        raise AdafedError(f"partition.minimum = {minimum} leaves no owner: none has that many samples.")
    if clients is None:
        for key, value in (("large", large), ("large_minimum", large_minimum)):
            if value is not None:
                raise AdafedError(f"partition.{key} = {value} has no meaning without partition.clients; give both.")
        return parts
    _whole("clients", clients, least=1)
    if clients > len(parts):
        raise AdafedError(
            f"partition.clients = {clients}, but only {len(parts)} owners have "
            f"partition.minimum = {minimum} samples or more."
        )
    if large is None and large_minimum is None:
        chosen = np.sort(generator(seed).choice(len(parts), size=clients, replace=False))
        return [parts[i] for i in chosen]
    return _large_and_others(parts, clients, large, large_minimum, generator(seed))


def _large_and_others(
    parts: list[Indices], clients: int, large: int | None, least: int | None, random: np.random.Generator
) -> list[Indices]:
    if large is None or least is None:
        raise AdafedError("partition.large and partition.large_minimum go together: give both, or leave both out.")
    _whole("large", large, least=1)
    _whole("large_minimum", least, least=1)
    kinds = [[i for i, part in enumerate(parts) if (len(part) >= least) == wanted] for wanted in (True, False)]
    counts = (large, clients - large)
    for kind, count, what in zip(kinds, counts, (f"{least} samples or more", "fewer"), strict=True):
        if not 0 <= count <= len(kind):
            raise AdafedError(
                f"partition.large = {large} of partition.clients = {clients} asks for {count} owners with {what}; "
                f"there are {len(kind)}."
            )
    both = zip(kinds, counts, strict=True)
    chosen = [kind[k] for kind, count in both for k in random.choice(len(kind), size=count, replace=False)]
    return [parts[i] for i in sorted(chosen)]


def names() -> tuple[str, ...]:
    return PARTITIONS.names()


def partition(
    name: str, targets: npt.ArrayLike, groups: npt.ArrayLike | None, chosen: Mapping[str, Any], *, seed: Seed
) -> list[Indices]:
    """The partitioner of that name, with the options of the configuration's [partition] table.

    One of the user's own, `module:attribute`, is called with the labels, the options, and `seed` and `groups` (the
    natural owners or None) if it takes them. The seed is a number or a generator, as np.random.default_rng accepts.
    """
    labels = groups if name == "natural" else targets
    with own_code("partition.name", name) if ":" in name else nullcontext():
        made: object = PARTITIONS.call(name, chosen, labels, seed=seed, groups=groups)
    return _checked(name, made, len(np.asarray(targets)))


def _checked(name: str, made: object, samples: int) -> list[Indices]:
    """Sorted arrays of samples that exist, none of them in two hands."""
    where = f"partition.name = {name!r}"
    if not isinstance(made, list | tuple) or not made:
        got = "no client" if isinstance(made, list | tuple) else type(made).__name__
        raise AdafedError(f"{where} returned {got}; it must return a list with an array of indices for each client")
    parts: list[Indices] = []
    owned = np.zeros(samples, dtype=bool)
    for client, given in enumerate(made):
        part = np.asarray(given)
        if part.ndim != 1 or not (np.issubdtype(part.dtype, np.integer) or not len(part)):
            raise AdafedError(
                f"{where} gave client {client} {part.dtype} of shape {part.shape}; it must be one row of whole numbers"
            )
        part = np.sort(part.astype(np.int64))
        if len(part) and not 0 <= part[0] <= part[-1] < samples:
            wrong = part[0] if part[0] < 0 else part[-1]
            raise AdafedError(f"{where} gave client {client} sample {wrong}; samples go from 0 to {samples - 1}")
        twice = part[owned[part]] if len(np.unique(part)) == len(part) else part[:-1][np.diff(part) == 0]
        if len(twice):
            raise AdafedError(f"{where} gave sample {twice[0]} twice; a sample must have one owner at most")
        owned[part] = True
        parts.append(part)
    return parts


def left_out(parts: Sequence[Indices], samples: int) -> Indices:
    """The samples that no client owns."""
    owned = np.zeros(samples, dtype=bool)
    for part in parts:
        owned[part] = True
    return np.flatnonzero(~owned)


def proportional(total: int, weights: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """`total` things shared in proportion to the weights, by largest remainder; ties go to the first."""
    if total == 0 or not weights.any():
        return np.zeros(len(weights), dtype=np.int64)
    exact = total * (weights / weights.sum())
    share: npt.NDArray[np.int64] = np.floor(exact + 1e-9).astype(np.int64)
    rest = total - int(share.sum())
    share[np.argsort(share - exact, kind="stable")[:rest]] += 1
    return share


def _deal(pools: Sequence[Indices], counts: npt.NDArray[np.int64]) -> list[Indices]:
    """Hand counts[c, k] samples of pool c to client k."""
    hands: list[list[Indices]] = [[] for _ in range(counts.shape[1])]
    for pool, shares in zip(pools, counts, strict=True):
        for hand, piece in zip(hands, np.split(pool, np.cumsum(shares))[:-1], strict=True):
            hand.append(piece)
    return [np.sort(np.concatenate(hand)) for hand in hands]


def _top_up(counts: npt.NDArray[np.int64], minimum: int) -> None:
    """Move single samples from the largest client to the smallest until all have `minimum`; in place."""
    sizes = counts.sum(axis=0)
    while sizes.min() < minimum:
        giver, taker = int(sizes.argmax()), int(sizes.argmin())
        label = int(counts[:, giver].argmax())
        counts[label, giver] -= 1
        counts[label, taker] += 1
        sizes[giver] -= 1
        sizes[taker] += 1


def _labels(values: npt.ArrayLike) -> npt.NDArray[np.int64]:
    labels = np.asarray(values)
    if labels.ndim != 1 or not np.issubdtype(labels.dtype, np.integer):
        raise AdafedError(
            f"labels must be one whole number for each sample, not {labels.dtype} of shape {labels.shape}."
        )
    return labels.astype(np.int64, copy=False)


def _enough_samples(clients: int, samples: int) -> None:
    _whole("clients", clients, least=1)
    if clients > samples:
        raise AdafedError(f"partition.clients = {clients} is more than the {samples} samples there are.")


def _whole(option: str, value: object, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise AdafedError(f"partition.{option} = {value!r} must be a whole number of at least {least}.")
