"""What speaks against a run is told, and nothing is told of a run that has nothing against it."""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path

import pytest
from made_up import made_up_run, made_up_study, summarised

from adafed.page import gathered
from adafed.page.doubts import doubts, swings


def told(*paths: Path) -> str:
    return "\n".join(doubt.text for doubt in doubts(gathered(list(paths))))


def test_a_good_study_has_nothing_against_it(tmp_path: Path) -> None:
    assert told(made_up_study(tmp_path, {"FedAvg": 0.4, "AdaFed": 0.5}, every=1)) == ""


def test_few_seeds_are_told_where_methods_are_compared(tmp_path: Path) -> None:
    for seeds, words in ((1, "one seed of a method is too few"), (2, "2 seeds of a method are too few")):
        assert words in told(made_up_study(tmp_path / str(seeds), {"FedAvg": 0.4, "AdaFed": 0.5}, seeds))
    assert "too few" not in told(made_up_study(tmp_path / "b", {"FedAvg": 0.4}, 1))


def test_a_method_with_a_comma_in_its_name_is_told_from_the_next(tmp_path: Path) -> None:
    study = made_up_study(tmp_path, {"FedAvg": 0.4, "AdaFed, memory": 0.5}, seeds=1, skipped=(2,))
    made_up_run(tmp_path / "TERM" / "seed-0")
    assert "FedAvg, seed 0" in told(study)
    assert "“AdaFed, memory”, seed 0" in told(study)


def test_an_ill_conditioned_matrix_is_told_where_it_is_common(tmp_path: Path) -> None:
    folder = made_up_run(tmp_path / "run")
    for rounds, expected in ((1, False), (3, True)):
        with sqlite3.connect(folder / "rounds.sqlite") as database:
            database.execute("UPDATE rounds SET condition = 1e15 WHERE round <= ?", (rounds,))
        assert ("ill-conditioned" in told(folder)) == expected


def test_rounds_that_changed_nothing_and_notes_in_words_are_told(tmp_path: Path) -> None:
    notes = {4: {"warnings": ["the loss has not fallen for 3 rounds"]}, 6: {"warning": "half the cohort was bounded"}}
    text = told(made_up_run(tmp_path / "run", skipped=(2, 3), notes=notes))
    assert "2 of 10 rounds changed nothing" in text
    assert "round 4: the loss has not fallen for 3 rounds" in text
    assert "round 6: half the cohort was bounded" in text


def test_warnings_of_guards_and_fallbacks_are_told(tmp_path: Path) -> None:
    notes = {2: {"warned": {"a": "holds 90 % of the step"}}, 3: {"warned": {"a": "holds 80 % of the step"}},
             4: {"fallback": "the simplex point"}, 5: {"hidden": "too little is true"}}  # fmt: skip
    text = told(made_up_run(tmp_path / "run", notes=notes))
    assert "guards warned 2 times, in 2 of 10 rounds: holds … % of the step" in text
    assert "in 1 of 10 rounds the rule fell back: the simplex point" in text
    assert "in 1 of 10 rounds the rule saw the cohort alone: too little is true" in text


def test_evaluations_without_everybody_are_told(tmp_path: Path) -> None:
    gone = {"not_evaluated": {"a": "did not answer", "b": "did not answer"}}
    text = told(made_up_run(tmp_path / "run", notes={2: gone, 4: gone}))
    assert re.search(
        r"in 2 of \d+ evaluations up to 2 clients did not answer: the numbers are of the others alone", text
    )


def test_other_data_at_the_same_seed_is_told(tmp_path: Path) -> None:
    made_up_run(tmp_path / "FedAvg" / "seed-0", rule="fedavg", checksum="a" * 64)
    made_up_run(tmp_path / "AdaFed" / "seed-0", checksum="b" * 64)
    assert "at seed 0 the clients do not hold the same samples" in told(tmp_path)


def test_cohorts_that_follow_the_losses_are_told_where_methods_are_compared(tmp_path: Path) -> None:
    study = made_up_study(tmp_path, {"FedAvg": 0.4, "AdaFed": 0.5}, every=1)
    assert "differ in whom they see" not in told(study)
    for toml in study.rglob("config.toml"):
        toml.write_text(toml.read_text().replace('sampling = "uniform"', 'sampling = "loss"'))
    assert "clients are drawn by the losses they told (cohort.sampling)" in told(study)
    assert "differ in whom they see" not in told(study / "AdaFed")


def test_small_test_sets_are_told(tmp_path: Path) -> None:
    folder = made_up_run(tmp_path / "run")
    with sqlite3.connect(folder / "rounds.sqlite") as database:
        database.execute("UPDATE evaluations SET samples = 9 WHERE client IN ('a', 'b', 'c')")
    assert "3 of 10 clients have fewer than 20 test samples" in told(folder)


@pytest.mark.parametrize(
    ("values", "expected"),
    [([50, 60, 50, 60, 50], 10.0), ([10, 20, 30, 40, 50], None), ([50, 51, 50, 51, 50], None), ([10, 60], None)],
)
def test_a_swinging_model_is_told_from_a_rising_one(values: list[float], expected: float | None) -> None:
    (run,) = summarised({"FedAvg": [{"mean": 1.0}]}).runs
    changed = run.__class__(**{**vars(run), "evaluations": {"worst_10": tuple(values)}})
    found = swings(changed)
    assert found is None if expected is None else found == pytest.approx(expected)
