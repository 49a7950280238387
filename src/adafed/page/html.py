"""The page: one HTML file with everything in it, which asks no network for anything.

All text goes through `escape`. Data lies in a script element as JSON in which `<`, `>` and `&` are escapes, so that no
name can end it. The page's own scripts are named by their hashes, and nothing else may run (Content-Security-Policy).
"""

from __future__ import annotations

import base64
import hashlib
import json
from functools import cache
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

from adafed.files import full_disk_in_a_sentence, write_whole
from adafed.page.body import facts_line, links, sections
from adafed.page.model import Report
from adafed.page.payload import payload
from adafed.page.tables import as_texts

SCRIPTS = ("data.js", "pictures.js", "clients.js", "page.js")


def page(report: Report, live: str | None = None) -> str:
    """The whole file. `live` is set where it is served: what the page is of, so that it can ask for what is newer."""
    made = sections(report)
    library = _asset("plotly-basic.min.js")
    own = '"use strict";(() => {\n' + "\n".join(_asset(name) for name in SCRIPTS) + "\n})();"
    policy = (
        f"default-src 'none'; script-src {_hashed(library)} {_hashed(own)}; style-src 'unsafe-inline'; "
        f"img-src data: blob:; connect-src '{'none' if live is None else 'self'}'; base-uri 'none'; form-action 'none'"
    )
    return Template(_asset("page.html")).substitute(
        policy=policy,
        title=escape(report.title),
        facts=escape(facts_line(report)),
        links=links(made),
        style=_asset("page.css"),
        main="\n".join(made.values()),
        data=embedded(content(report, live)),
        library=library,
        script=own,
    )


def content(report: Report, live: str | None = None) -> dict[str, Any]:
    return payload(report) | {"tables": as_texts(report), "live": live}


def write_page(report: Report, path: Path) -> Path:
    text = page(report)
    with full_disk_in_a_sentence(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, text.encode("utf-8", "replace"))
    return path


def embedded(content: Any) -> str:
    """JSON that cannot end the element it stands in, nor begin another."""
    text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for letter in "<>&\u2028\u2029":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return text


def _hashed(script: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


@cache
def _asset(name: str) -> str:
    return (files("adafed.page") / "assets" / name).read_text(encoding="utf-8")
