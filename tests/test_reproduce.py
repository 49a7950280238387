"""The list of what can be reproduced, and what a wrong request is told."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from adafed import paper
from adafed.cli import app
from adafed.compare import Run
from adafed.errors import AdafedError
from adafed.report.figures import FIGURES
from adafed.reproduce import Request, chosen, hours, listing, of_profile, planned_for, target, targets


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


def test_missing_data_is_one_sentence_that_says_where_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(AdafedError, match=r"Fashion-MNIST is not in .*: get its four idx files from"):
        planned_for(Request("fashion", out=tmp_path))
    with pytest.raises(AdafedError, match="CIFAR-10 is not in"):
        planned_for(Request("figure-rho", out=tmp_path))


def test_unknown_names_are_told() -> None:
    with pytest.raises(AdafedError, match="no table or figure of the paper"):
        target("cifar1000")
    with pytest.raises(AdafedError, match="there are figure-hull"):
        planned_for(Request("figure-nine"))
    with pytest.raises(AdafedError, match="has no profile 'desktop'"):
        planned_for(Request("fashion", "desktop"))
    with pytest.raises(AdafedError, match="--method is 'SCAFFOLD'; fashion has FedAvg"):
        chosen(target("fashion").study("paper"), ["SCAFFOLD"])


def test_a_name_chooses_its_row_or_all_rows_that_begin_with_it() -> None:
    study = target("fashion").study("paper")
    assert list(chosen(study, ["AdaFed"]).methods) == ["AdaFed"]
    swept = target("fashion", sweep=True).study("paper")
    assert list(chosen(swept, ["AdaFed"]).methods) == [
        f"AdaFed, gamma={g}" for g in ("0", "0.01", "0.1", "1", "5", "10")
    ]


def test_cost_grows_with_the_rounds_and_the_epochs() -> None:
    plain, more = (hours(targets()[name].study("paper"), "paper") for name in ("cifar100-1-e10", "cifar100-1-e20"))
    assert plain is not None
    assert more == pytest.approx(2 * plain)


def test_what_is_tuned_is_the_papers_grid(monkeypatch: pytest.MonkeyPatch) -> None:
    from adafed.reproduce import tuning

    monkeypatch.setattr("adafed.data.catalogue.available", lambda name, data_dir=None: True)
    assert tuning(Request("fashion"), "FedAvg")[1] == {}  # the server rates remain
    assert list(tuning(Request("cifar10-1"), "FedFV")[1]) == ["rule.alpha"]  # not the paper's: the rule's own
    assert list(tuning(Request("cifar10-1"), "Ditto")[1]) == ["ditto.lambda"]
    config, grid, _ = tuning(Request("cifar10-2"), "AdaFed as printed")
    assert config.split.validation > 0
    assert grid == {"rule.gamma": (0.0, 0.01, 0.1, 1.0, 5.0, 10.0)}
    config, _, _ = tuning(Request("fashion", settings=['rule.hull="simplex"']), "AdaFed")  # FedAvg has no hull
    assert config.rule.options["hull"] == "simplex"


def test_the_note_of_a_profile_has_the_numbers_of_the_variant_that_was_run() -> None:
    for name in ("cifar100-1", "cifar100-1-e10"):
        study = target(name).study("laptop")
        method = next(iter(study.methods))
        config = study.config(method, 0)
        (note,) = of_profile(study, "laptop", [Run(method, config, Path("nowhere"))])
        assert f"rounds = {config.rounds}, " in note
        assert "model.width = 8" in note
    assert target("cifar100-1-e10").study("laptop").config("FedAvg", 0).rounds < 20
