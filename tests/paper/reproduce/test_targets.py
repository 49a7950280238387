"""Tables by name, and their rows."""

from __future__ import annotations

import pytest

from adafed.paper.reproduce import chosen, target
from adafed.paper.reproduce.targets import source_study
from adafed.report.figures import Source, figure


def test_a_name_chooses_its_row_or_all_rows_that_begin_with_it() -> None:
    study = target("fashion").study("paper")
    assert list(chosen(study, ["AdaFed"]).methods) == ["AdaFed"]
    swept = target("fashion", sweep=True).study("paper")
    assert list(chosen(swept, ["AdaFed"]).methods) == [
        f"AdaFed, gamma={g}" for g in ("0", "0.01", "0.1", "1", "5", "10")
    ]


def test_a_sweep_has_no_rows_for_the_default_which_states_no_gamma() -> None:
    swept = target("fashion", sweep=True).study("tuned")
    assert {row.partition(", gamma=")[0] for row in swept.methods} == {"AdaFed as printed", "AdaFed"}


@pytest.mark.parametrize("source", figure("figure-norm").sources, ids=lambda source: source.experiment)
def test_the_lengths_of_d_are_of_the_same_runs_in_every_profile(source: Source) -> None:
    cases = {tuple(source_study(source, profile).methods) for profile in ("paper", "laptop", "smoke")}
    (methods,) = cases
    assert len(methods) == 6


@pytest.mark.parametrize("source", figure("figure-loss").sources, ids=lambda source: source.experiment)
@pytest.mark.parametrize("profile", ["paper", "laptop"])
def test_the_losses_of_two_clients_are_known_whenever_they_take_part(source: Source, profile: str) -> None:
    study = source_study(source, profile)
    assert list(study.methods) == ["AdaFed", "AdaFed as printed"]
    assert {study.config(method).evaluation.improvement_every for method in study.methods} == {1}
