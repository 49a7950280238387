"""The configuration's model, built for the federation's data and tried on one sample: what does not fit is told in a
sentence before anything is trained."""

from __future__ import annotations

import os
from collections.abc import Callable

import numpy as np
import torch
from torch import nn

from adafed import models
from adafed.config.configuration import Config
from adafed.data.base import Federation
from adafed.errors import AdafedError
from adafed.models.lstm import CharacterLSTM
from adafed.training.flat_module import FlatModule, initial_module, seeded

COPIES = 3  # of a model that a run has at the least: the server's, the one that is trained, an update
MOST_CLASSES = 1_000_000  # a last layer of more is no classifier but a mistake in the labels


def fitted(config: Config, federation: Federation, device: torch.device) -> FlatModule:
    model = _built(config, federation, device)
    _try_once(config.model.name, model, federation, device)
    if isinstance(model.module, CharacterLSTM):
        _require_vocabulary(model.module.embedding.num_embeddings, federation)
    return model


def _built(config: Config, federation: Federation, device: torch.device) -> FlatModule:
    name, shape, classes = config.model.name, federation.input_shape, federation.classes
    if classes > MOST_CLASSES:
        raise AdafedError(
            f"the data have labels up to {classes - 1}, and so {classes} classes; labels must be 0, 1, 2, ..., below "
            f"{MOST_CLASSES}"
        )
    try:
        if ":" not in name:  # one of ours, which can be made without its numbers
            _require_memory(lambda: models.build(name, shape, classes, **config.model.options))
        module = initial_module(
            lambda: models.build(name, shape, classes, **config.model.options), config.derived_seeds().model
        )
        model = FlatModule(module, device)
    except AdafedError:  # a ValueError too, and a sentence already
        raise
    except (Exception, SystemExit) as error:  # the user's own module may raise anything
        raise AdafedError(f"model.name = {name!r} cannot be built for {classes} classes: {_first(error)}") from error
    if not model.trained:
        raise AdafedError(f"model.name = {name!r} has no parameter to train; it must have one")
    return model


def _require_memory(make: Callable[[], nn.Module]) -> None:
    """That the numbers of a model are in proportion to the machine: the system may promise memory that is not there."""
    with torch.device("meta"), seeded(0):
        count = sum(one.numel() for one in make().parameters())
    there = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if 4 * COPIES * count > there:
        raise MemoryError(f"it has {count:,} parameters, too many for the {there / 1e9:.0f} GB of this machine")


def _try_once(name: str, model: FlatModule, federation: Federation, device: torch.device) -> None:
    split = federation.client(0).train
    inputs = federation.normalisation(split.inputs[:1]).to(device)
    try:
        model.module.eval()
        with torch.no_grad(), seeded(0):
            outputs = model.module(inputs.clone())
    except (Exception, SystemExit) as error:
        hint = "" if inputs.is_floating_point() else " (whole numbers are text here; save features as float32)"
        what = f"inputs of shape {federation.input_shape} and type {split.inputs.dtype}"
        raise AdafedError(f"model.name = {name!r} does not take {what}{hint}: {_first(error)}") from error
    wanted = (1, federation.classes)
    if not isinstance(outputs, torch.Tensor) or outputs.shape != wanted:
        found = tuple(outputs.shape) if isinstance(outputs, torch.Tensor) else type(outputs).__name__
        raise AdafedError(
            f"model.name = {name!r} answers one sample with {found}; it must be {wanted}, a score a class"
        )


def _require_vocabulary(words: int, federation: Federation) -> None:
    """The first sample may have none of the rare words."""
    for k, client in enumerate(federation.ids):
        data = federation.client(k)
        for part in (data.train, data.validation, data.test):
            lowest, highest = (int(found(part.inputs)) for found in (np.min, np.max)) if len(part.inputs) else (0, 0)
            if lowest < 0 or highest >= words:
                token = lowest if lowest < 0 else highest
                raise AdafedError(
                    f"model.vocabulary is {words}, and client {client} has the token {token}; tokens go from 0, and it "
                    "must be larger than the largest"
                )


def least_trained(config: Config, model: FlatModule, federation: Federation) -> int:
    """How many samples the module can be trained on at the least: BatchNorm takes no mean over one value."""
    batch_norm = [one for one in model.module.modules() if isinstance(one, nn.modules.batchnorm._BatchNorm)]
    if not batch_norm:
        return 1
    before = model.vector.clone()
    inputs = federation.normalisation(federation.client(0).train.inputs[:1]).to(model.vector.device)
    try:
        model.module.train()
        with torch.no_grad(), seeded(0):
            model.module(inputs.clone())
        return 1
    except ValueError as error:
        if not str(error).startswith("Expected more than 1 value per channel"):
            raise
    finally:
        model.receive(before)
    if config.local.batch_size == 1:
        raise AdafedError(
            "local.batch_size = 1, and the model's BatchNorm cannot be trained on one sample; take 2 or more"
        )
    for client, samples in zip(federation.ids, federation.train_sizes.tolist(), strict=True):
        if samples == 1:
            raise AdafedError(
                f"client {client} has one training sample, on which the model's BatchNorm cannot be trained; leave it "
                "out (partition.minimum) or take a model with GroupNorm"
            )
    return 2


def _first(error: BaseException) -> str:
    """The first line of what it says."""
    return str(error).partition("\n")[0] or repr(error)
