"""A real Chromium, the system's own. Nothing is installed here: scripts/test does that where it can."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
         "--disable-sync", "--no-first-run"]  # fmt: skip


def chromium() -> str:
    """Where it is. Without one the tests are skipped, but never in CI."""
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None and not os.environ.get("CI"):
        pytest.skip("no Chromium here; install the system's package, as in apt-get install chromium")
    assert found is not None, "CI has no Chromium: scripts/test installs the package chromium"
    return found


@contextmanager
def opened(browser: Any, address: str | Path, *, offline: bool = True, **options: Any) -> Iterator[Any]:
    """A page that is ready. What it complains of is a failure: a console error, an exception, a request, a dialog."""
    url = address.absolute().as_uri() if isinstance(address, Path) else address
    given = {"viewport": {"width": 1280, "height": 900}, **options}
    context = browser.new_context(**given)
    context.set_offline(offline)
    page = context.new_page()
    page.set_default_timeout(120_000)  # milliseconds: a machine may be busy
    complaints: list[str] = []
    page.on("console", lambda said: complaints.append(said.text) if said.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("dialog", lambda dialog: (complaints.append(f"dialog {dialog.message}"), dialog.dismiss()))
    if offline:
        page.on("request", lambda asked: complaints.append(asked.url) if asked.url.startswith("http") else None)
    try:
        page.goto(url)
        page.wait_for_selector("html[data-ready]")
        yield page
        assert complaints == []
    finally:
        context.close()


def scrolled_through(page: Any) -> None:
    """Down to the end, so that every picture is drawn, and up again."""
    for name in page.eval_on_selector_all("[data-picture]", "all => all.map(one => one.dataset.picture)"):
        page.eval_on_selector(f'[data-picture="{name}"]', "one => one.scrollIntoView({behavior: 'instant'})")
        page.wait_for_selector(f'[data-picture="{name}"] .main-svg, [data-picture="{name}"] p')
    page.evaluate("scrollTo({top: 0, behavior: 'instant'})")
