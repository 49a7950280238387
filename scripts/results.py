"""Writes what is made from results/*.json: the tables of docs/results.md, between its markers, and its figure.

python scripts/results.py            # write
python scripts/results.py --check    # say what is out of date, and end with 1 if anything is
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from adafed.studies import overview

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "results.md"
FIGURES = {ROOT / "docs" / "figures" / "results.svg": 3, ROOT / "docs" / "figures" / "results-narrow.svg": 1}


def filled(text: str, parts: dict[str, str]) -> str:
    """The page with each part between `<!-- made: NAME -->` and `<!-- end -->`."""
    for name, part in parts.items():
        pattern = re.compile(rf"(<!-- made: {name} -->\n)(?:(?!<!-- end).)*(<!-- end -->)", re.DOTALL)
        if len(pattern.findall(text)) != 1:
            raise SystemExit(f"docs/results.md needs one place for {name!r}: <!-- made: {name} --> ... <!-- end -->")
        text = pattern.sub(lambda found, part=part: f"{found[1]}\n{part}\n{found[2]}", text)  # type: ignore[misc]
    return text


def stale() -> list[str]:
    """What is not as the kept files say."""
    found, left = overview.setups(ROOT / "results")
    told = overview.fingerprint(overview.panels(found))
    old = [path for path in FIGURES if not path.exists() or told not in path.read_text()]
    text = PAGE.read_text()
    return [str(path.relative_to(ROOT)) for path in ([PAGE] if filled(text, made(found, left)) != text else []) + old]


def made(found: list[overview.Setup], left: dict[str, str]) -> dict[str, str]:
    return {
        "table": overview.table(found),
        "verdicts": overview.verdicts(found),
        "others": overview.others(found),
        "left out": overview.left_out(left),
    }


def main() -> None:
    if sys.argv[1:] == ["--check"]:
        old = stale()
        print("\n".join(f"{name} is out of date: python scripts/results.py" for name in old) or "up to date")
        sys.exit(bool(old))
    found, left = overview.setups(ROOT / "results")
    PAGE.write_text(filled(PAGE.read_text(), made(found, left)))
    for path, across in FIGURES.items():
        overview.drawn(found, path, across)
    print(f"wrote {PAGE.relative_to(ROOT)} and its figure from {len(found)} set-ups")


if __name__ == "__main__":
    main()
