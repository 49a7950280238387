"""The command line: what is named twice is no second seed, and is told of."""

from __future__ import annotations

from pathlib import Path

import pytest
from made_up import made_up_run

from adafed.commands.training import show


def test_show_counts_a_run_that_is_named_twice_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = made_up_run(tmp_path / "run")
    monkeypatch.chdir(tmp_path)
    show([run, Path("run")])
    captured = capsys.readouterr()
    assert "±" not in captured.out
    assert "round 10 of 10" in captured.out  # as where one is named
    assert "run repeats" in captured.err
    assert "left out" in captured.err
