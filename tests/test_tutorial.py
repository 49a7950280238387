"""The tutorial can be followed: its files are written, its commands and its Python run, in the order of the page."""

from __future__ import annotations

import re
import shlex
import shutil
import sys
from pathlib import Path

import pytest

from adafed import cli

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"^```(\w+)(?: title=\"([^\"]+)\")?\n(.*?)^```", re.MULTILINE | re.DOTALL)
OWN = ("offices", "mine", "network", "clinics")  # modules that the pages write
HERE = "run = { workers = 0 }"
SHORTER = (
    ("rounds = 60", f"rounds = 4\n{HERE}"), ("rounds = 20", f"rounds = 3\n{HERE}"), ("--seeds 0,1,2,3,4", "--seeds 0"),
    ("--seeds 0,1,2", "--seeds 0"), ("rounds = 30", "rounds = 3"), ("(3, 30)", "(1, 2)"),
)  # fmt: skip


def followed(page: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that are titled are written, sh is run, Python without a title shares one namespace as in a notebook."""
    monkeypatch.chdir(folder)
    names: dict[str, object] = {"__name__": "__main__"}
    for language, title, text in BLOCK.findall((ROOT / "docs" / "tutorial" / f"{page}.md").read_text()):
        for long, short in SHORTER:
            text = text.replace(long, short)
        if title:
            (folder / title).write_text(text)
        elif language == "sh":
            for line in text.splitlines():
                called(line, monkeypatch)
        elif language == "python":
            with monkeypatch.context() as patch:
                patch.syspath_prepend(str(folder))
                exec(compile(text, page, "exec", dont_inherit=True), names)


def called(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line of sh, here: a process for each would import torch first. Own modules are found and read anew."""
    program, *arguments = shlex.split(line)
    assert program == "adafed", line
    code: object = None
    with monkeypatch.context() as patch:
        patch.setattr(sys, "argv", [program, *arguments])
        patch.setattr(sys, "path", list(sys.path))
        forget()
        try:
            cli.main()
        except SystemExit as end:
            code = end.code
        forget()
    assert not code, line


def forget() -> None:
    for name in OWN:
        sys.modules.pop(name, None)


@pytest.fixture
def clean() -> None:
    """A module of one test is not that of the next."""
    forget()


@pytest.mark.slow
@pytest.mark.usefixtures("clean")
def test_the_first_federation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    followed("first", tmp_path, monkeypatch)
    assert (tmp_path / "runs" / "first" / "report.html").exists()


@pytest.mark.slow
@pytest.mark.usefixtures("clean")
def test_own_data_and_then_an_own_rule(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    followed("data", tmp_path, monkeypatch)
    assert len(list((tmp_path / "clients").glob("*.npz"))) == 10
    followed("rule", tmp_path, monkeypatch)
    assert (tmp_path / "runs" / "offices" / "mine-AboveMedian").is_dir()
    shutil.rmtree(tmp_path / "runs")


@pytest.mark.slow
@pytest.mark.usefixtures("clean")
def test_the_walk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    followed("walk", tmp_path, monkeypatch)
    assert (tmp_path / "runs" / "clinics" / "report.html").exists()
