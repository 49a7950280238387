"""What a request leads to, and what a wrong one is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from adafed.errors import AdafedError
from adafed.paper.reproduce import Request, chosen, planned_for, target, tuning


@pytest.fixture(autouse=True)
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No data set is here."""
    monkeypatch.setenv("ADAFED_DATA", str(tmp_path / "nothing"))


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
    with pytest.raises(AdafedError, match="--method is 'SCAFFOLD'; fashion has 'FedAvg'"):
        chosen(target("fashion").study("paper"), ["SCAFFOLD"])


def test_what_is_tuned_is_the_papers_grid(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("adafed.data.catalogue.available", lambda name, data_dir=None: True)
    assert tuning(Request("fashion"), "FedAvg")[1] == {}  # the server rates remain
    assert list(tuning(Request("cifar10-1"), "FedFV")[1]) == ["rule.alpha"]  # not the paper's: the rule's own
    assert list(tuning(Request("cifar10-1"), "Ditto")[1]) == ["ditto.lambda"]
    config, grid, _ = tuning(Request("cifar10-2"), "AdaFed as printed")
    assert config.split.validation > 0
    assert grid == {"rule.gamma": (0.0, 0.01, 0.1, 1.0, 5.0, 10.0)}
    config, _, _ = tuning(Request("fashion", settings=['rule.hull="simplex"']), "AdaFed")  # FedAvg has no hull
    assert config.rule.options["hull"] == "simplex"


def test_a_figure_without_runs_takes_nothing_that_is_asked_of_runs(tmp_path: Path) -> None:
    for asked in (
        {"profile": "paper"},
        {"profile": "nonsense"},
        {"rounds": 3},
        {"seeds": [1]},
        {"methods": ["AdaFed"]},
    ):
        with pytest.raises(AdafedError, match=r"--\w+ is .*; figure-hull is computed without runs, so leave it out"):
            planned_for(Request("figure-hull", out=tmp_path, **asked))  # type: ignore[arg-type]
    assert planned_for(Request("figure-hull", out=tmp_path)).runs == []
    with pytest.raises(AdafedError, match="no profile 'nonsense'"):
        planned_for(Request("figure-late", out=tmp_path, profile="nonsense"))
