"""Kept sweeps over gamma: which files are sweeps, who is told apart, and that the figure says what it shows."""

from __future__ import annotations

from pathlib import Path

from adafed.studies import sweeps
from adafed.studies.kept import Kept, KeptRun, save


def run(method: str, seed: int, worst: float) -> KeptRun:
    values = {"mean": (worst + 10.0,), "worst_10": (worst,), "excess": (20.0 - worst / 10,)}
    return KeptRun(method, seed, 1, False, (1,), values, {})


def kept(*runs: KeptRun) -> Kept:
    return Kept("Made up", ("mean",), runs, {"profile": "short"})


# 5 is two above 1 at every seed; 10 swings on its own around it.
SWEPT = kept(
    *(run("AdaFed, gamma=10", seed, 42.0 + 5 * (3 - seed)) for seed in range(4)),
    *(run("AdaFed, gamma=1", seed, 40.0 + 5 * seed) for seed in range(4)),
    *(run("AdaFed, gamma=5", seed, 42.0 + 5 * seed + 0.1 * (seed % 2)) for seed in range(4)),
)


def found(folder: Path) -> list[sweeps.Setup]:
    save(SWEPT, folder / "made-gamma-short.json")
    save(kept(run("FedAvg", 0, 1.0), run("AdaFed, gamma=1", 0, 1.0)), folder / "a-table.json")
    save(kept(), folder / "empty.json")
    return sweeps.sweeps(folder)


def test_a_sweep_is_a_file_with_nothing_but_values_of_gamma(tmp_path: Path) -> None:
    (setup,) = found(tmp_path)
    assert setup.name == "made-gamma-short"
    assert list(sweeps.gammas(setup)) == [1.0, 5.0, 10.0]


def test_rows_as_printed_are_left_out_of_it(tmp_path: Path) -> None:
    save(kept(*SWEPT.runs, run("AdaFed as printed, gamma=1", 0, 99.0)), tmp_path / "both.json")
    (setup,) = sweeps.sweeps(tmp_path)
    assert sorted(setup.methods()) == ["AdaFed, gamma=1", "AdaFed, gamma=10", "AdaFed, gamma=5"]


def test_the_table_has_a_column_for_each_value_and_marks_ties(tmp_path: Path) -> None:
    head, _, row, *_ = sweeps.table(found(tmp_path)).splitlines()
    assert head == "| set-up |  | 1 | 5 | 10 |"
    one, five, ten = (cell.split("<br>")[1] for cell in row.strip("| ").split(" | ")[2:])
    assert (one, five, ten) == ("47.5", "**49.5**", "**49.5**")


def test_the_figure_shows_every_seed_and_another_number_is_another_figure(tmp_path: Path) -> None:
    there = found(tmp_path)
    (panel,) = sweeps.panels(there)
    assert [one.label for one in panel.lines] == ["worst 10%", "mean"]
    assert panel.lines[0].seeds[0] == (40.0, 45.0, 50.0, 55.0)
    sweeps.drawn(there, tmp_path / "x.svg", 1)
    text = (tmp_path / "x.svg").read_text()
    assert sweeps.fingerprint([panel]) in text
    assert all(f">{word}<" in text for word in ("worst 10%", "mean", "gamma"))
    save(kept(*SWEPT.runs[:-1], run("AdaFed, gamma=5", 3, 0.0)), tmp_path / "made-gamma-short.json")
    assert sweeps.fingerprint(sweeps.panels(sweeps.sweeps(tmp_path))) not in text
