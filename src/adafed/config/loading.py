"""Configurations from files: an experiment's TOML, and the one that a run directory keeps."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from adafed.config.configuration import Config, config_from
from adafed.config.experiments import path as experiment_path
from adafed.config.merging import merged, parse_settings
from adafed.errors import AdafedError

STUDY_SECTIONS = ("methods", "profiles", "variants", "study")


def load_config(path: str | Path, settings: Iterable[str] = ()) -> Config:
    """The configuration of a TOML file. A study's own sections are left aside: what remains is the experiment that its
    methods change.

    Args:
        path: The file, or the name of a packaged experiment.
        settings: On top of it, as on the command line: `["rule.gamma=5"]`.

    Returns:
        The configuration, checked.

    Raises:
        AdafedError: For a file that is missing or no TOML, and as for `config_from`.

    Examples:
        >>> import adafed
        >>> adafed.load_config("demo", ["rounds=3"]).rounds
        3
    """
    file = experiment_path(path)
    content = {key: value for key, value in read_toml(path, file).items() if key not in STUDY_SECTIONS}
    content.setdefault("name", file.stem)
    return config_from(merged(content, parse_settings(settings)))


def load_kept(folder: Path) -> Config:
    """The configuration of a run directory. What did not exist when it was written was off."""
    file = folder / "config.toml"
    off = {"name": file.stem, "memory": {"rounds": 0}, "guards": {"use": []}}
    content = merged(off, read_toml(file, file))
    if isinstance(content["memory"], dict) and content["memory"].get("rounds") == "auto":
        content = merged({"memory": {"truth": 0.0}}, content)
    return config_from(content)


def read_toml(path: str | Path, file: Path) -> dict[str, Any]:
    """What `file` says; `path` is how the user called it."""
    try:
        text = file.read_text(encoding="utf-8-sig")  # some editors begin a file with a mark
    except OSError as error:
        raise AdafedError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise AdafedError(f"{path} is not text in UTF-8; a configuration is a TOML file") from None
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # also a number of thousands of digits, and thousands of brackets
        raise AdafedError(f"{path} is not TOML: {error}") from None
