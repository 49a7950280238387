"""What would steer a terminal is shown, and all that is printed passes through that."""

from __future__ import annotations

import io
import logging
import sys
from pathlib import Path

import pytest
from rich.progress import Progress, TextColumn
from rich.table import Table
from rich.text import Text

from adafed import cli
from adafed.commands import shared
from adafed.visible import visible

RED, TITLE = "\x1b[31;1mred", "\x1b]0;mine\x07"


def test_what_steers_is_shown_and_the_rest_stays() -> None:
    assert visible(f"{RED} {TITLE} \x9b2J \u202e\ud800 é ρ\tok\n") == (
        "\\x1b[31;1mred \\x1b]0;mine\\x07 \\x9b2J \\u202e\\ud800 é ρ\tok\n"
    )
    assert visible(visible(RED)) == visible(RED)


@pytest.mark.parametrize("what", ["string", "text", "table", "title", "progress"])
def test_nothing_printed_steers_the_terminal(what: str) -> None:
    file = io.StringIO()
    console = shared.SafeConsole(markup=False, file=file, width=100, force_terminal=True, color_system=None)
    table = Table(title=RED if what == "title" else "")
    table.add_column(TITLE)
    table.add_row(RED)
    if what == "progress":
        with Progress(TextColumn("{task.description}", markup=False), console=console) as progress:
            progress.add_task(RED + TITLE)
    else:
        console.print({"string": RED + TITLE, "text": Text(RED + TITLE)}.get(what, table))
    assert "\\x1b[31;1mred" in file.getvalue()
    assert "\x1b[31;1m" not in file.getvalue()
    assert "\x1b]0;" not in file.getvalue()


@pytest.mark.parametrize("form", ["table", "csv", "markdown"])
def test_client_ids_of_a_folder_do_not_steer_the_terminal(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import numpy as np

    (tmp_path / "data").mkdir()
    for name in (RED, "b", TITLE):
        x, y = np.random.default_rng(0).normal(size=(20, 3)).astype("f4"), np.arange(20) % 2
        np.savez(tmp_path / "data" / f"{name}.npz", x=x, y=y)
    (tmp_path / "e.toml").write_text(
        'rounds = 1\nmodel = "logistic"\n[data]\nname = "folder"\nfolder = "data"\nclasses = 2\n[run]\nworkers = 0\n'
    )
    monkeypatch.chdir(tmp_path)
    for arguments in (["run", "e.toml", "--out", "run", "-q"], ["show", "run", "-f", form], ["run", TITLE]):
        monkeypatch.setattr(sys, "argv", ["adafed", *arguments])
        with pytest.raises(SystemExit):
            cli.main()
    printed = capsys.readouterr()
    assert "\x1b" not in printed.out + printed.err
    assert "\\x1b]0;mine\\x07 " in printed.err


def test_flowers_log_shows_what_nodes_send(caplog: pytest.LogCaptureFixture) -> None:
    pytest.importorskip("flwr")
    from adafed.engines.flower import strategy

    logger = logging.getLogger("flwr")
    record = logger.makeRecord("flwr", logging.WARNING, strategy.__file__, 1, "left out: %s", (RED,), None)
    assert logger.filter(record)
    assert record.getMessage() == "left out: \\x1b[31;1mred"
