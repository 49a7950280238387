"""The example of one's own parts: one file outside the package, named in a TOML, on both engines and in the page."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import pytest
import torch
from flwr.app import ConfigRecord, Message, RecordDict
from pretend import PretendGrid
from typer.testing import CliRunner

import adafed
from adafed.cli import app
from adafed.client_rules import client_rule
from adafed.engines.flower.experiment import experiment_client, run_experiment
from adafed.engines.flower.new import copy_own
from adafed.engines.flower.replies import told_of
from adafed.engines.local.simulate import Simulation
from adafed.testing import check_client_rule, check_rule

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples" / "own"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for file in ("mine.py", "experiment.toml"):
        shutil.copy(EXAMPLE / file, tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    return tmp_path


def test_both_engines_run_it_to_the_same_bits(here: Path) -> None:
    config = adafed.load_config(here / "experiment.toml").changed(local={"together": "never"}, run={"workers": 0})
    with Simulation(config) as simulation:
        for _ in simulation.rounds():
            pass
    grid = PretendGrid(experiment_client(config), 4)
    there = run_experiment(grid, config, here / "there", nodes=4)
    assert torch.equal(simulation.state.parameters, there.parameters)
    with Simulation(config.changed(run={"workers": 2})) as elsewhere:
        for _ in elsewhere.rounds():
            pass
    assert torch.equal(simulation.state.parameters, elsewhere.state.parameters)


def test_the_command_line_runs_it_and_shows_its_metric(here: Path) -> None:
    found = CliRunner().invoke(app, ["run", "experiment.toml", "-q", "--workers", "0", "--out", "run"])
    assert found.exit_code == 0, found.output
    assert "best - worst" in found.output
    assert "mine:ByLoss(power=2.0) + mine:Drifting(lean=0.2)" in found.output


def test_a_new_app_has_the_modules_that_its_experiment_names(here: Path) -> None:
    (here / "beside.py").write_text("")
    (here / "imported.py").write_text("LEAN = 0.2\n")
    (here / "mine.py").write_text((here / "mine.py").read_text() + "\nimport imported\n")
    found = CliRunner().invoke(app, ["flower", "new", "app", "experiment.toml"])
    assert found.exit_code == 0, found.output
    assert {file.name for file in (here / "app").glob("*.py")} == {"mine.py", "imported.py"}
    assert (here / "app" / "mine.py").read_bytes() == (here / "mine.py").read_bytes()
    assert "copied imported.py, mine.py into it" in found.output


def test_a_new_app_says_what_has_to_be_installed(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = adafed.load_config("experiment.toml")
    assert copy_own(here / "app", adafed.config_from({"rounds": 1})) == ([], [])
    (here / "elsewhere" / "app").mkdir(parents=True)
    monkeypatch.chdir(here / "elsewhere")
    assert copy_own(here / "elsewhere" / "app", config) == ([], ["mine"])
    assert not list((here / "elsewhere" / "app").iterdir())


def test_a_new_app_has_whole_packages(here: Path) -> None:
    config = adafed.load_config("experiment.toml")
    (here / "mine" / "__pycache__").mkdir(parents=True)
    for name in ("__init__.py", "part.py"):
        (here / "mine" / name).write_text("")
    (here / "app").mkdir()
    assert copy_own(here / "app", config) == (["mine/"], [])
    assert {file.name for file in (here / "app" / "mine").iterdir()} == {"__init__.py", "part.py"}


def test_its_rules_keep_the_contracts(here: Path) -> None:
    check_rule(adafed.rule("mine:ByLoss", power=2.0))
    check_client_rule(client_rule("mine:Drifting", lean=0.2))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"pkg.mine:Rule": {"number": [1, 2.5]}, "fedcorr": 3}', {"pkg.mine:Rule": {"number": [1, 2.5]}}),
        ("[1]", {}),
        ("no json", {}),
        ("[" * 100_000, {}),
    ],
)
def test_what_rules_tell_is_json_by_rule(text: str, told: dict[str, object]) -> None:
    content = RecordDict({"told:3": ConfigRecord({"told": text})})
    assert told_of(Message(content, 1, "train"), ":3") == told
    assert told_of(Message(content, 1, "train"), ":4") == {}


def test_the_page_shows_the_files_as_they_are() -> None:
    page, code = (ROOT / "docs" / "own.md").read_text(), (EXAMPLE / "mine.py").read_text()
    assert (EXAMPLE / "experiment.toml").read_text() in page
    for block in re.findall(r"^```python fragment\n(.*?)^```", page, re.MULTILINE | re.DOTALL):
        assert block in code
