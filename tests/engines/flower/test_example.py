"""The example app and what `adafed flower` writes: they run as they stand."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from flwr.app import Context, RecordDict
from pretend import PretendGrid
from typer.testing import CliRunner

from adafed import AdafedError, config_from, load_config
from adafed.cli import app as commands
from adafed.engines.flower.certificates import make_certificates
from adafed.engines.flower.new import new_app

EXAMPLE = Path(__file__).parents[3] / "examples" / "flower"


def components(folder: Path, monkeypatch: pytest.MonkeyPatch, **changes: Any) -> tuple[Any, Any, Context]:
    """The app's server, its client, and the server's context, found as Flower finds them."""
    project = tomllib.loads((folder / "pyproject.toml").read_text())
    named = project["tool"]["flwr"]["app"]
    monkeypatch.syspath_prepend(str(folder))
    found = []
    for part in ("serverapp", "clientapp"):
        module, _, name = named["components"][part].partition(":")
        for old in [one for one in sys.modules if one.partition(".")[0] == module.partition(".")[0]]:
            monkeypatch.delitem(sys.modules, old)
        found.append(getattr(__import__(module, fromlist=[name]), name))
    return found[0], found[1], Context(1, 1, {}, RecordDict(), named["config"] | changes)


def test_the_example_runs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    server, client, context = components(EXAMPLE, monkeypatch, rounds=3)
    server(PretendGrid(client, 5), context)
    told = capsys.readouterr().out
    assert told.count("client ") == 5
    assert "after round 3: mean" in told


def test_a_new_app_runs_its_experiment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = {"rounds": 1, "partition": {"name": "iid", "clients": 3}, "model": {"name": "mlp", "hidden": [4]}}
    folder = new_app(tmp_path / "my app", config_from(small), 3)
    server, client, context = components(folder, monkeypatch, set="rounds=2 rule.gamma=1.5")
    grid = PretendGrid(client, 3)
    for node in grid.contexts.values():
        node.run_config = context.run_config
    server(grid, context)
    assert (folder / "run" / "model.safetensors").exists()
    assert load_config(folder / "run" / "config.toml").rule.options["gamma"] == 1.5
    with pytest.raises(AdafedError, match="not empty"):
        new_app(folder, config_from(small), 3)


def test_commands_write_an_app_and_certificates(tmp_path: Path) -> None:
    runner = CliRunner()
    written = runner.invoke(commands, ["flower", "new", str(tmp_path / "app"), "--set", "rounds=3"])
    assert written.exit_code == 0, written.output
    assert "num-supernodes=3" in written.output
    made = runner.invoke(commands, ["flower", "certificates", str(tmp_path / "keys"), "--nodes", "2"])
    assert made.exit_code == 0, made.output
    names = {"ca.crt", "server.pem", "server.key", "node0", "node0.pub", "node1", "node1.pub"}
    assert {file.name for file in (tmp_path / "keys").iterdir()} == names


def test_private_keys_are_for_their_owner_and_never_overwritten(tmp_path: Path) -> None:
    folder = make_certificates(tmp_path / "keys", nodes=1)
    assert {(folder / name).stat().st_mode & 0o777 for name in ("server.key", "node0")} == {0o600}
    with pytest.raises(AdafedError, match="never overwritten"):
        make_certificates(folder)
    (tmp_path / "open").mkdir(mode=0o777)
    (tmp_path / "open").chmod(0o777)
    assert make_certificates(tmp_path / "open", nodes=1).stat().st_mode & 0o777 == 0o700
