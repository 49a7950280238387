"""The page's pictures for print."""

from __future__ import annotations

from pathlib import Path

import pytest
from made_up import made_up_run, made_up_study

from adafed import AdafedError
from adafed.page import gathered
from adafed.page.figures import DRAWINGS, write_figures


def test_every_picture_in_three_forms(tmp_path: Path) -> None:
    report = gathered([made_up_study(tmp_path / "study", {"FedAvg": 0.4, "AdaFed": 0.6}, 2)])
    paths = write_figures(report, tmp_path / "figures")
    assert {path.name for path in paths} == {f"{name}.{form}" for name in DRAWINGS for form in ("png", "svg", "pdf")}
    assert all(path.stat().st_size > 1000 for path in paths)
    before = [path.read_bytes() for path in paths]
    assert [path.read_bytes() for path in write_figures(report, tmp_path / "figures")] == before


def test_kept_results_have_the_pictures_they_have_numbers_for(tmp_path: Path) -> None:
    kept = Path(__file__).parents[2] / "results" / "cifar10-1-laptop.json"
    names = {path.stem for path in write_figures(gathered([kept]), tmp_path)}
    assert names == {"mean", "worst", "rho", "pareto"}


def test_without_an_evaluation_there_is_a_sentence(tmp_path: Path) -> None:
    folder = made_up_run(tmp_path / "run", rounds=1)
    (folder / "rounds.sqlite").unlink()
    with pytest.raises(AdafedError, match="nothing to draw"):
        write_figures(gathered([folder]), tmp_path / "figures")
