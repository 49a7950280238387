"""Writes what is made from results/*.json: the tables of docs/results.md and docs/notebook/gamma.md, between their
markers, and their figures.

python scripts/results.py            # write
python scripts/results.py --check    # say what is out of date, and end with 1 if anything is
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from adafed.studies import overview, sweeps

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"


class Page(NamedTuple):
    """A page, what stands between its markers, and its figures: how each is drawn and what it must say it shows."""

    path: Path
    parts: dict[str, str]
    figures: dict[Path, Callable[[Path], None]]
    shows: str


def pages() -> list[Page]:
    found, left = overview.setups(ROOT / "results")
    swept = sweeps.sweeps(ROOT / "results")
    figures, gamma = DOCS / "figures", DOCS / "figures" / "gamma.svg"
    return [
        Page(
            DOCS / "results.md",
            {
                "table": overview.table(found),
                "verdicts": overview.verdicts(found),
                "others": overview.others(found),
                "left out": overview.left_out({name: why for name, why in left.items() if name not in named(swept)}),
            },
            {
                figures / "results.svg": lambda path: overview.drawn(found, path, 3),
                figures / "results-narrow.svg": lambda path: overview.drawn(found, path, 1),
            },
            overview.fingerprint(overview.panels(found)),
        ),
        Page(
            DOCS / "notebook" / "gamma.md",
            {"sweeps": sweeps.table(swept)},
            {gamma: lambda path: sweeps.drawn(swept, path)},
            sweeps.fingerprint(sweeps.panels(swept)),
        ),
    ]


def named(swept: list[overview.Setup]) -> set[str]:
    return {setup.name for setup in swept}


def filled(page: Page) -> str:
    """Its text with each part between `<!-- made: NAME -->` and `<!-- end -->`."""
    text = page.path.read_text()
    for name, part in page.parts.items():
        pattern = re.compile(rf"(<!-- made: {name} -->\n)(?:(?!<!-- end).)*(<!-- end -->)", re.DOTALL)
        if len(pattern.findall(text)) != 1:
            raise SystemExit(f"{page.path} needs one place for {name!r}: <!-- made: {name} --> ... <!-- end -->")
        text = pattern.sub(lambda found, part=part: f"{found[1]}\n{part}\n{found[2]}", text)  # type: ignore[misc]
    return text


def stale() -> list[str]:
    """What is not as the kept files say."""
    old = []
    for page in pages():
        old += [page.path] if filled(page) != page.path.read_text() else []
        old += [path for path in page.figures if not path.exists() or page.shows not in path.read_text()]
    return [str(path.relative_to(ROOT)) for path in old]


def main() -> None:
    if sys.argv[1:] == ["--check"]:
        old = stale()
        print("\n".join(f"{name} is out of date: python scripts/results.py" for name in old) or "up to date")
        sys.exit(bool(old))
    for page in pages():
        page.path.write_text(filled(page))
        for path, draw in page.figures.items():
            draw(path)
        print(f"wrote {page.path.relative_to(ROOT)} and {len(page.figures)} of its figures")


if __name__ == "__main__":
    main()
