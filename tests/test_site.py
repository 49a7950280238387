"""The site builds offline without a warning, and leaves out no public name, option or command."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import yaml

import adafed
import adafed.flower
import adafed.testing
from adafed.client_rules import CLIENT_RULES
from adafed.server.optimizers import OPTIMIZERS
from adafed.server.schedules import SCHEDULES
from adafed.server_rules import RULES
from adafed.server_rules.guards import GUARDS

ROOT = Path(__file__).parents[1]
pytest.importorskip("mkdocs")


def built(folder: Path, config: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "https_proxy": "http://127.0.0.1:9"}  # nothing is fetched
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", str(config), "-d", str(folder)]
    return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=ROOT, check=False)


@pytest.fixture(scope="module")
def pages() -> ModuleType:
    spec = importlib.util.spec_from_file_location("site_pages", ROOT / "scripts" / "pages.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_the_site_builds_and_leaves_out_nothing(tmp_path: Path) -> None:
    done = built(tmp_path, ROOT / "mkdocs.yml")
    assert done.returncode == 0, done.stderr
    reference = {page.name: page.read_text() for page in (tmp_path / "reference").glob("*.html")}
    for name in adafed.__all__:
        assert f">{name}</span>" in reference["python.html"] or name in ("__version__", "register"), name
    for name in (*adafed.flower.__all__, "check_rule", "check_client_rule"):
        assert name in reference["flower.html"] + reference["testing.html"], name
    for registry, page in (
        (RULES, "rules"), (CLIENT_RULES, "rules"), (GUARDS, "parts"), (OPTIMIZERS, "parts"), (SCHEDULES, "parts"),
    ):  # fmt: skip
        for name in registry.names():
            if registry.entry(name).__module__.startswith("adafed."):  # tests register some of their own
                assert f"<code>{name}</code>" in reference[f"{page}.html"], name
    for command in ("demo", "run", "compare", "tune", "report", "flower new", "flower certificates"):
        assert f">adafed {command}<" in reference["commands.html"], command
    assert "unpkg.com" not in "".join(reference.values())
    assert "googleapis" not in "".join(reference.values())
    assert (tmp_path / "figures" / "results.svg").exists()


def test_a_dead_link_is_an_error(tmp_path: Path) -> None:
    """With this site's own settings, on a page that has one."""

    class Loader(yaml.SafeLoader):
        pass

    settings = yaml.load((ROOT / "mkdocs.yml").read_text(), Loader)
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text("# Here\n\n[there](nowhere.md), [in there](index.md#nothing)\n")
    small = {"site_name": "x", "validation": settings["validation"], "strict": settings["strict"]}
    (tmp_path / "mkdocs.yml").write_text(yaml.safe_dump(small))
    done = built(tmp_path / "site", tmp_path / "mkdocs.yml")
    assert done.returncode == 1
    assert "Aborted with 2 warnings in strict mode" in done.stdout + done.stderr


def test_every_method_can_be_cited(pages: ModuleType) -> None:
    cited = pages.bibliography()
    for registry in (RULES, CLIENT_RULES):
        for name in registry.names():
            entry = registry.entry(name)
            year = entry.source.split()[-1]
            assert "author" in cited[name], name
            assert entry.source.split()[0] in cited[name], f"{name}: {entry.source}"
            assert year in cited[name] or name == "propfair", f"{name}: {entry.source}"  # there a preprint of 2022


def test_the_commands_are_those_of_the_help(pages: ModuleType) -> None:
    text = pages.commands()
    assert "| `--rule`, `-r` |" in text
    assert "A rule, as in adafed:gamma=5,hull=simplex, in place of the experiment's methods" in text
