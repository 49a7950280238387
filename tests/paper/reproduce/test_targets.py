"""Tables by name, and their rows."""

from __future__ import annotations

from adafed.paper.reproduce import chosen, target


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
