"""What of an experiment runs on this package's simulator only."""

from __future__ import annotations

from adafed.config.sections import Config
from adafed.errors import AdafedError


def for_flower(config: Config) -> Config:
    """The configuration, if Flower's engines can run all of it."""
    if config.fedcorr is not None:
        raise AdafedError(
            "[fedcorr] does not run on Flower, whose clients are asked to train and to evaluate and nothing else here; "
            "leave the section out, or run the experiment with adafed run and without --engine flower"
        )
    return config
