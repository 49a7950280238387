"""A part of a data set: some of its classes, a share of its samples, each class as an owner, pixels standardised.

The options stand in the configuration's [data] table beside those of the set itself:

keep_classes   [36, 37] or {shirt = 6, pullover = 2}: only these, numbered anew in this order
owner          "class": every class is the natural owner of its samples, by its name if it has one
resize         32: images of 32 x 32, by the linear filter
share          0.2: a fifth of the samples of every class (of every owner, where there are owners), train and test alike
standardise    "pixel": every input less its mean over the samples, divided by its deviation + 0.001; "channel": images,
               each channel less its mean over the samples, divided by its deviation. The publisher's test part has no
               say in either; where clients' test samples are dealt from the rest (split.mode = "within"), they have
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F

from adafed.data.base import Array, Dataset, Indices, Normalisation, sha256
from adafed.errors import AdafedError

KEYS = ("keep_classes", "owner", "share", "resize", "standardise")
SHARING = 107  # its stream of random numbers under a seed
GUARD = 1e-3  # fair_flearn's, which keeps pixels that never change at 0
IMAGES = 4096  # so many at a time, as the set may lie on disk


def selected(dataset: Dataset, options: Mapping[str, Any], *, seed: int) -> Dataset:
    """`options` holds some of KEYS. Without any the data set comes back as it is."""
    if not options:
        return dataset
    names: tuple[str, ...] | None = None
    told = repr(sorted(options.items()))
    if "keep_classes" in options:
        dataset, names = _with_classes(dataset, options["keep_classes"])
    if "owner" in options:
        dataset = _owned_by_class(dataset, options["owner"], names)
    if "share" in options:
        dataset = _share(dataset, options["share"], seed)
    if "resize" in options:
        dataset = _resized(dataset, options["resize"])
    if "standardise" in options:
        dataset = _standardised(dataset, options["standardise"])
    return replace(dataset, checksum=sha256(dataset.checksum, told))


def _with_classes(dataset: Dataset, wanted: object) -> tuple[Dataset, tuple[str, ...] | None]:
    named = isinstance(wanted, Mapping)
    labels = list(wanted.values()) if isinstance(wanted, Mapping) else wanted
    whole = isinstance(labels, list) and all(type(label) is int for label in labels)
    if not isinstance(labels, list) or not whole or not labels or len(set(labels)) != len(labels):
        raise AdafedError(f"data.keep_classes = {wanted!r}; it must be a list of different classes, as in [0, 2, 6]")
    outside = [label for label in labels if not 0 <= label < dataset.classes]
    if outside:
        raise AdafedError(f"data.keep_classes names {outside[0]}; {dataset.name} has 0 to {dataset.classes - 1}")
    numbers = np.full(dataset.classes, -1, dtype=np.int64)
    numbers[labels] = np.arange(len(labels))
    kept = np.flatnonzero(numbers[dataset.targets] >= 0)
    if not len(kept):
        raise AdafedError(f"data.keep_classes = {labels}; {dataset.name} has no sample of these here")
    dataset = _rows(dataset, kept)
    dataset = replace(dataset, targets=numbers[dataset.targets], classes=len(labels))
    return dataset, tuple(wanted) if named and isinstance(wanted, Mapping) else None


def _owned_by_class(dataset: Dataset, owner: object, names: tuple[str, ...] | None) -> Dataset:
    if owner != "class":
        raise AdafedError(f"data.owner = {owner!r}; it must be 'class'")
    return replace(dataset, groups=dataset.targets, group_names=names)


def _share(dataset: Dataset, share: object, seed: int) -> Dataset:
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share <= 1:
        raise AdafedError(f"data.share = {share!r}; it must be above 0 and at most 1")
    by = dataset.targets if dataset.groups is None else dataset.groups
    kinds = by * 2 + (0 if dataset.is_test is None else dataset.is_test)
    # Of every kind its samples in a random order, and the first share of them; at least one of each.
    order = np.random.default_rng([seed, 0, SHARING]).permutation(len(dataset))
    order = order[np.argsort(kinds[order], kind="stable")]
    _, starts, counts = np.unique(kinds[order], return_index=True, return_counts=True)
    places = np.arange(len(order)) - np.repeat(starts, counts)
    wanted: npt.NDArray[np.int64] = np.maximum(1, np.floor(counts * float(share) + 0.5)).astype(np.int64)
    return _rows(dataset, np.sort(order[places < np.repeat(wanted, counts)]))


def _resized(dataset: Dataset, side: object) -> Dataset:
    if isinstance(side, bool) or not isinstance(side, int) or not 1 <= side <= 4096:
        raise AdafedError(f"data.resize = {side!r}; it must be a whole number from 1 to 4096, as in 32")
    images = dataset.inputs
    if images.dtype != np.uint8 or images.ndim != 4:
        raise AdafedError(f"data.resize = {side} is for images; {dataset.name} has none, so leave it out")
    found = np.empty((*images.shape[:2], side, side), np.uint8)
    for start in range(0, len(images), IMAGES):
        block = torch.from_numpy(np.array(images[start : start + IMAGES])).to(torch.float32)
        larger = F.interpolate(block, size=(side, side), mode="bilinear", antialias=True)
        found[start : start + IMAGES] = larger.round_().clamp_(0, 255).to(torch.uint8).numpy()
    return replace(dataset, inputs=found)


def _standardised(dataset: Dataset, how: object) -> Dataset:
    if how == "channel":
        return replace(dataset, normalisation=_channels(dataset))
    if how != "pixel":
        raise AdafedError(f"data.standardise = {how!r}; it must be 'pixel' or 'channel'")
    values = dataset.inputs.astype(np.float32)
    if dataset.inputs.dtype == np.uint8:
        values /= 255.0
    trained = values if dataset.is_test is None else values[~dataset.is_test]
    values -= trained.mean(axis=0)
    values /= trained.std(axis=0) + GUARD
    return replace(dataset, inputs=values)


def _channels(dataset: Dataset) -> Normalisation:
    images = dataset.inputs
    if images.dtype != np.uint8 or images.ndim != 4:
        raise AdafedError(f"data.standardise = 'channel' is for images; {dataset.name} has none, so leave it out")
    trained = np.arange(len(images)) if dataset.is_test is None else np.flatnonzero(~dataset.is_test)
    sums, squares = np.zeros(images.shape[1]), np.zeros(images.shape[1])
    for start in range(0, len(trained), IMAGES):
        pixels = images[trained[start : start + IMAGES]].astype(np.float64) / 255.0
        sums += pixels.sum(axis=(0, 2, 3))
        squares += np.square(pixels).sum(axis=(0, 2, 3))
    count = max(1, len(trained) * images.shape[2] * images.shape[3])
    mean = sums / count
    deviation = np.sqrt(np.maximum(squares / count - mean**2, 0.0))
    return Normalisation(tuple(mean.tolist()), tuple(np.where(deviation > 0, deviation, 1.0).tolist()))


def _rows(dataset: Dataset, kept: Indices) -> Dataset:
    def rows(column: Array | None) -> Any:
        return None if column is None else np.asarray(column[kept])

    return replace(
        dataset,
        inputs=rows(dataset.inputs),
        targets=rows(dataset.targets),
        groups=rows(dataset.groups),
        is_test=rows(dataset.is_test),
    )
