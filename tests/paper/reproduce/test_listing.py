"""The list of what can be reproduced, and its cost."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from adafed import paper
from adafed.cli import app
from adafed.paper.reproduce import hours, listing, targets
from adafed.report.figures import FIGURES


@pytest.fixture(autouse=True)
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No data set is here."""
    monkeypatch.setenv("ADAFED_DATA", str(tmp_path / "nothing"))


def test_every_table_of_the_paper_and_every_figure_is_listed() -> None:
    heads, rows = listing()
    assert len(heads) == len(rows[0])
    names = {row[0] for row in rows}
    assert names == {*paper.tables(), *FIGURES}
    here = {row[0]: row[-1] for row in rows}
    assert here["cifar10-1"] == "no"
    assert here["figure-hull"] == here["figure-late"] == "yes"


def test_the_command_prints_the_list() -> None:
    result = CliRunner().invoke(app, ["reproduce", "--list"])
    assert result.exit_code == 0, result.output
    for name in ("cifar100-2-e20", "fashion-gamma", "figure-pareto"):
        assert name in result.stdout


def test_cost_grows_with_the_rounds_and_the_epochs() -> None:
    plain, more = (hours(targets()[name].study("paper"), "paper") for name in ("cifar100-1-e10", "cifar100-1-e20"))
    assert plain is not None
    assert more == pytest.approx(2 * plain)
