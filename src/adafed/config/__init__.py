"""The configuration of an experiment, and studies of several methods: what a TOML file may say."""

from adafed.config.configuration import Config, config_from
from adafed.config.loading import load_config
from adafed.config.merging import merged, parse_settings
from adafed.config.studies import Study, load_study, study_from

__all__ = [
    "Config",
    "Study",
    "config_from",
    "load_config",
    "load_study",
    "merged",
    "parse_settings",
    "study_from",
]
