"""Each client's train, validation and test samples.

Two modes. "within" holds out fractions of each client's own samples. "published" keeps the publisher's test
part for testing: each client gets the test samples of its natural owner, or test samples in its own mix of
classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from adafed.data.base import Indices
from adafed.data.partition import Seed, generator, proportional
from adafed.errors import AdafedError

MODES = ("within", "published")


@dataclass(frozen=True)
class ClientIndices:
    """Which samples of a data set one client trains on, tunes on and is tested on."""

    train: Indices
    validation: Indices
    test: Indices


def counts(samples: int, validation: float, test: float, whose: str = "a client") -> tuple[int, int, int]:
    """How many samples of a client train, validate and test.

    Fractions are rounded to the nearest whole number, but a fraction above zero gets a sample where there are
    enough: the first goes to train, the second to test, the third to validation.
    """
    check_fractions(validation, test)
    if samples < 1 + (test > 0):
        raise AdafedError(
            f"{whose} has {samples} samples, too few to train and test on: every client needs 2 or more "
            "(partition.minimum and split.limit decide, where there are any)."
        )
    tests = min(samples - 1, max(1, int(samples * test + 0.5))) if test > 0 else 0
    validations = min(samples - 1 - tests, max(1, int(samples * validation + 0.5))) if validation > 0 else 0
    return samples - validations - tests, validations, tests


def check_fractions(validation: float, test: float) -> None:
    for option, value in (("validation", validation), ("test", test)):
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1:
            raise AdafedError(f"split.{option} = {value!r} must be a fraction of at least 0 and below 1.")
    if validation + test >= 1:
        raise AdafedError(f"split.validation = {validation} and split.test = {test} leave nothing to train.")


def within(
    parts: Sequence[Indices],
    targets: npt.NDArray[np.int64],
    *,
    validation: float = 0.1,
    test: float = 0.1,
    stratified: bool = False,
    seed: Seed,
) -> list[ClientIndices]:
    """Hold out fractions of each client's own samples; `stratified` spreads them evenly over its classes."""
    random = generator(seed)
    clients = []
    for number, part in enumerate(parts):
        order = random.permutation(part)
        if stratified:
            order = order[np.argsort(targets[order], kind="stable")]
        role = _evenly(counts(len(part), validation, test, f"client {number}"), random)
        train, validations, tests = (np.sort(order[role == r]) for r in range(3))
        clients.append(ClientIndices(train, validations, tests))
    return clients


def published(
    parts: Sequence[Indices],
    targets: npt.NDArray[np.int64],
    is_test: npt.NDArray[np.bool_] | None,
    *,
    groups: npt.NDArray[np.int64] | None = None,
    validation: float = 0.1,
    stratified: bool = False,
    seed: Seed,
) -> list[ClientIndices]:
    """Train and validate on the client's samples in `parts`, all of the train part; test on the test part.

    With `groups`, a client is tested on the test samples of its owner. Without, every class of the test part
    is shared out in proportion to the clients' samples of that class, so that each is tested on the mix of
    classes it trains on. Test samples of classes or owners that no client has are left out.
    """
    if is_test is None or not is_test.any():
        raise AdafedError("split.mode = 'published' needs data with a published test part; use 'within'.")
    if any(is_test[part].any() for part in parts):
        raise AdafedError("split.mode = 'published' was given clients that own samples of the test part.")
    random = generator(seed)
    held = within(parts, targets, validation=validation, test=0.0, stratified=stratified, seed=random)
    pool = np.flatnonzero(is_test)
    tests = _by_owner(parts, groups, pool) if groups is not None else _by_class(parts, targets, pool, random)
    return [ClientIndices(h.train, h.validation, test) for h, test in zip(held, tests, strict=True)]


def _evenly(sizes: tuple[int, int, int], random: np.random.Generator) -> npt.NDArray[np.int64]:
    """A role (0 train, 1 validation, 2 test) for each place of a list, every role spread evenly along it.

    Of any run of the list each role gets its share to within about one, so that a list sorted by class is
    split alike in every class, and yet the totals are exact.
    """
    places = np.concatenate([(np.arange(size) + random.random()) / max(size, 1) for size in sizes])
    return np.repeat(np.arange(3), sizes)[np.argsort(places, kind="stable")]


def _by_class(
    parts: Sequence[Indices], targets: npt.NDArray[np.int64], pool: Indices, random: np.random.Generator
) -> list[Indices]:
    classes = int(max(targets[pool].max(), max(targets[part].max() for part in parts))) + 1
    own = np.array([np.bincount(targets[part], minlength=classes) for part in parts])  # clients x classes
    pools = [random.permutation(pool[targets[pool] == label]) for label in range(classes)]
    shares = np.array([proportional(len(pools[label]), own[:, label]) for label in range(classes)]).T
    for client in np.flatnonzero(shares.sum(axis=1) == 0):
        _lend(shares, own, int(client))
    hands: list[list[Indices]] = [[] for _ in parts]
    for label in range(classes):
        pieces = np.split(pools[label], np.cumsum(shares[:, label]))
        for hand, piece in zip(hands, pieces[:-1], strict=True):
            hand.append(piece)
    return [np.sort(np.concatenate(hand)) for hand in hands]


def _lend(shares: npt.NDArray[np.int64], own: npt.NDArray[np.int64], client: int) -> None:
    """Give a client too small for a share one test sample of its commonest class that another can spare."""
    for label in np.argsort(-own[client], kind="stable"):
        spare = np.where(shares.sum(axis=1) > 1, shares[:, label], 0)
        if own[client, label] > 0 and spare.max() > 0:
            shares[spare.argmax(), label] -= 1
            shares[client, label] += 1
            return
    raise AdafedError(
        f"split.mode = 'published' leaves client {client} without a test sample: "
        "the test part is too small for so many clients; use fewer or split.mode = 'within'."
    )


def _by_owner(parts: Sequence[Indices], groups: npt.NDArray[np.int64], pool: Indices) -> list[Indices]:
    order = pool[np.argsort(groups[pool], kind="stable")]
    tests = []
    for client, part in enumerate(parts):
        owner = groups[part[0]]
        if (groups[part] != owner).any():
            raise AdafedError(f"split.mode = 'published' by owner found two owners in client {client}.")
        start, end = np.searchsorted(groups[order], [owner, owner + 1])
        if start == end:
            raise AdafedError(
                f"split.mode = 'published': owner {owner} has no sample in the test part; use split.mode = 'within'."
            )
        tests.append(np.sort(order[start:end]))
    return tests
