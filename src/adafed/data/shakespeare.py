"""Shakespeare (McMahan et al., 2017; Caldas et al., 2018): 80 characters of a speaking role in, the next one out.

Read from LEAF's JSON with its train and test folders, or from the roles' texts: `by_role.json` ({role: text}), or
LEAF's raw `by_play_and_character/*.txt`. A text of n characters gives n - 80 windows, as in LEAF, and no test part.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from adafed.data import store
from adafed.data.base import Array, Dataset, Normalisation
from adafed.data.femnist import PAGE, leaf_files, leaf_users
from adafed.errors import AdafedError
from adafed.files import parsed

# LEAF's alphabet: a character is its place in this string.
ALPHABET = "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"
WINDOW = 80
_UNKNOWN = 255

RECIPE = store.Recipe("shakespeare", len(ALPHABET), Normalisation())

_CODES = np.full(256, _UNKNOWN, np.uint8)
_CODES[np.frombuffer(ALPHABET.encode("ascii"), np.uint8)] = np.arange(len(ALPHABET))


def present(root: Path) -> list[Path] | None:
    """LEAF's JSON first, then the texts."""
    folder = root / "shakespeare"
    parts = leaf_files(folder)
    if parts is not None:
        return [path for paths in parts.values() for path in paths]
    if (folder / "by_role.json").is_file():
        return [folder / "by_role.json"]
    return sorted((folder / "by_play_and_character").glob("*.txt")) or None


def load(root: Path) -> Dataset:
    sources = present(root)
    if sources is None:
        raise AdafedError(missing(root))
    parts = leaf_files(root / "shakespeare")

    def build(draft: store.Draft) -> None:
        names: dict[str, int] = {}
        if parts is not None:
            for part, path, user, x, y in leaf_users(parts):
                group = names.setdefault(user, len(names))
                windows = _windows(path, user, x)
                draft.append(windows, _next(path, user, y), np.full(len(y), group), is_test=part == "test")
        else:
            for path, role, text in _roles(sources):
                group = names.setdefault(role, len(names))
                codes = encode(text, f"{path}: role {role!r}")
                if len(codes) > WINDOW:
                    windows = np.lib.stride_tricks.sliding_window_view(codes, WINDOW)[:-1]
                    draft.append(windows, codes[WINDOW:], np.full(len(windows), group))
        draft.group_names = tuple(names)

    return store.cached(RECIPE, root, sources, build)


def missing(root: Path) -> str:
    return (
        f"Shakespeare is not in {root}: make it with LEAF ({PAGE}, data/shakespeare/preprocess.sh -s niid --sf 1.0 "
        f"-k 0 -t sample) and put its train and test folders of JSON files into {root / 'shakespeare'}."
    )


def encode(text: str, where: str = "the text") -> Array:
    """Each character's place in LEAF's alphabet; one outside it is refused."""
    codes = _CODES[np.frombuffer(text.encode("latin-1", errors="replace"), np.uint8)]
    wrong = np.flatnonzero(codes == _UNKNOWN)
    # "?" is of the alphabet, so what `replace` put in for a character beyond Latin-1 is looked for in the text itself.
    strange = text[wrong[0]] if len(wrong) else next((c for c in text if ord(c) > 255), None)
    if strange is not None:
        raise AdafedError(f"{where} has the character {strange!r}, which LEAF's alphabet of 80 lacks.")
    return codes


def decode(codes: Array) -> str:
    return "".join(ALPHABET[int(code)] for code in codes)


def _roles(sources: list[Path]) -> Iterator[tuple[Path, str, str]]:
    if sources[0].suffix == ".txt":
        for path in sources:
            # LEAF joins the lines of a role and closes gaps of two or more spaces before it cuts windows.
            text = path.read_text(encoding="utf-8", errors="replace").replace("\n", " ")
            yield path, path.stem, re.sub(" {2,}", " ", text)
        return
    path = sources[0]
    try:
        document = parsed(path.read_bytes())
    except ValueError as error:
        raise AdafedError(f"{path} is truncated or corrupt: it is not JSON.") from error
    if not isinstance(document, dict) or not all(isinstance(text, str) for text in document.values()):
        raise AdafedError(f"{path} is not an object of texts, {{role: text}}.")
    for role, text in document.items():
        yield path, role, text


def _windows(path: Path, user: str, x: list[Any]) -> Array:
    if not all(isinstance(text, str) and len(text) == WINDOW for text in x):
        raise AdafedError(f"{path}: user {user!r} has an x that is not a string of {WINDOW} characters.")
    return encode("".join(x), f"{path}: user {user!r}").reshape(-1, WINDOW)


def _next(path: Path, user: str, y: list[Any]) -> Array:
    if not all(isinstance(text, str) and len(text) == 1 for text in y):
        raise AdafedError(f"{path}: user {user!r} has a y that is not one character.")
    return encode("".join(y), f"{path}: user {user!r}")
