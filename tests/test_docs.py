"""The documentation is true: its Python runs, its TOML is a valid configuration, its tables miss no rule."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

import adafed
from adafed.cli import app
from adafed.config.configuration import config_from
from adafed.config.studies import study_from

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(language: str) -> list[tuple[str, str]]:
    found = []
    for page in PAGES:
        pattern = rf"^```{language}\n(.*?)^```"
        for number, text in enumerate(re.findall(pattern, page.read_text(), re.MULTILINE | re.DOTALL)):
            found.append((f"{page.relative_to(ROOT).with_suffix('').as_posix().replace('/', '-')}-{number}", text))
    return found


ALONE = [block for block in blocks("python") if not block[0].startswith("docs-tutorial")]  # see test_tutorial.py


@pytest.mark.parametrize(("name", "code"), [pytest.param(*block, id=block[0]) for block in ALONE])
def test_python_blocks_run(name: str, code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(code, name, "exec", dont_inherit=True), {"__name__": name})


@pytest.mark.parametrize(("name", "code"), [pytest.param(*block, id=block[0]) for block in blocks("python fragment")])
def test_fragments_are_python(name: str, code: str) -> None:
    compile(code, name, "exec")


@pytest.mark.parametrize(("name", "text"), [pytest.param(*block, id=block[0]) for block in blocks("toml")])
def test_toml_blocks_are_valid(name: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "examples" / "own"))  # whose parts a page names
    content = tomllib.loads(text)
    if "methods" in content or "study" in content:
        assert list(study_from(content, name).methods) == list(content.get("methods", {}))
    else:
        config_from(content)


def test_the_documented_configuration_is_complete() -> None:
    text = (ROOT / "docs" / "configuration.md").read_text()
    for section, value in config_from({}).to_dict().items():
        assert re.search(rf"^(\[{section}\]|{section} =)", text, re.MULTILINE), section
        for key in value if isinstance(value, dict) else ():
            assert re.search(rf"^#? ?{key} =", text, re.MULTILINE), f"{section}.{key}"


def test_every_rule_is_documented() -> None:
    text = (ROOT / "docs" / "rules.md").read_text()
    for rule in adafed.rules():
        assert f"| `{rule}` |" in text


def test_links_between_pages_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def commands() -> list[str]:
    """Every `adafed results` in the pages that names a file; NAME stands for any."""
    text = "\n".join(page.read_text() for page in PAGES)
    found = (" ".join(one.split()) for one in re.findall(r"`(adafed\s+results\s+results/[^`]*)`", text))
    return sorted({one for one in found if "NAME" not in one and "..." not in one})


@pytest.mark.parametrize("command", commands())
def test_commands_that_read_kept_results_run(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "results").symlink_to(ROOT / "results")
    found = CliRunner().invoke(app, shlex.split(command)[1:])
    assert found.exit_code == 0, found.output or found.exception
