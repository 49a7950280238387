"""The sentences say no more than the numbers: a rise or fall where the interval shows it, right in sign and size."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up import made_up_run, made_up_study, summarised
from scipy import stats

from adafed.page import gathered
from adafed.page.model import Report
from adafed.page.sentences import change, compared, points, promised, sentences, worst_off

SHARE = st.floats(0, 100).map(lambda value: round(value, 3))
MEASURES = st.fixed_dictionaries({"mean": SHARE, "worst_10": SHARE})
PAIRS = st.lists(st.tuples(MEASURES, MEASURES), min_size=1, max_size=6)
# Small steady changes, which intervals do show; independent values seldom do.
STEADY = st.tuples(
    st.floats(10, 90), st.floats(10, 90), st.floats(-5, 5), st.floats(-5, 5), st.integers(2, 6), st.floats(0, 1)
)
Pair = tuple[dict[str, float], dict[str, float]]
NUMBER = r"([\d.]+)\u00a0%"


def steady(base: float, low: float, lift: float, gain: float, seeds: int, noise: float) -> list[Pair]:
    found = []
    for seed in range(seeds):
        wobble = noise * math.sin(1.0 + 2.3 * seed)
        before = {"mean": base, "worst_10": low}
        found.append((before, {"mean": base + gain + wobble, "worst_10": low + lift - wobble}))
    return found


def report_of(pairs: list[Pair]) -> Report:
    return summarised({"FedAvg": [before for before, _ in pairs], "AdaFed": [after for _, after in pairs]})


def interval(values: list[float]) -> tuple[float, float]:
    """Student's t by another hand."""
    mean = sum(values) / len(values)
    error = stats.sem(values)
    if error == 0:
        return mean, mean
    low, high = stats.t.interval(0.95, len(values) - 1, loc=mean, scale=error)
    return float(low), float(high)


def check(pairs: list[Pair]) -> None:
    text = compared(report_of(pairs), "AdaFed", "FedAvg", 1)
    changes = {key: [after[key] - before[key] for before, after in pairs] for key in ("mean", "worst_10")}
    means = {key: sum(found) / len(found) for key, found in changes.items()}
    said = {
        "worst_10": 1 if " lifts " in text else -1 if " lowers " in text else 0,
        "mean": 1 if " gains " in text else -1 if " costs " in text else 0,
    }
    if len(pairs) == 1:
        assert not any(said.values())
        assert "one seed cannot tell" in text
        return
    for key, sign in said.items():
        low, high = interval(changes[key])
        if sign:
            assert sign * means[key] > 0
            assert low > -1e-9 if sign > 0 else high < 1e-9
        elif abs(means[key]) > 1e-6:
            assert low <= 1e-6
            assert high >= -1e-6
    assert ("beyond chance" in text) == any(said.values())
    assert ("both are beyond chance" in text) == all(said.values())
    assert ("could be chance" in text) == (not all(said.values()))
    before, after = (sum(one["worst_10"] for one in side) / len(pairs) for side in zip(*pairs, strict=True))
    numbers = [float(one) for one in re.findall(NUMBER, text)]
    assert any(abs(one - before) <= 0.0501 for one in numbers)
    assert any(abs(one - after) <= 0.0501 for one in numbers)
    if said["mean"]:
        assert points(means["mean"]) in text


@given(PAIRS)
def test_no_difference_is_claimed_that_the_interval_does_not_show(pairs: list[Pair]) -> None:
    check(pairs)


@given(STEADY)
def test_what_the_interval_shows_is_said_in_sign_and_size(made: tuple[float, float, float, float, int, float]) -> None:
    check(steady(*made))


def test_the_words_of_a_clear_case() -> None:
    text = compared(report_of(steady(76.0, 41.0, 12.0, -0.6, 5, 0.1)), "AdaFed", "FedAvg", 1)
    assert text.startswith(
        "AdaFed lifts the worst tenth of clients from 41.0\u00a0% to 53.0\u00a0% and costs 0.6 points on average"
    )
    assert "over 5 seeds both are beyond chance" in text


@given(STEADY, st.integers(2, 9))
def test_a_choice_among_many_needs_more(made: tuple[float, float, float, float, int, float], among: int) -> None:
    report = report_of(steady(*made))
    for key in ("mean", "worst_10"):
        alone, chosen = (change(report, "AdaFed", "FedAvg", key, number) for number in (1, among))
        assert alone is not None
        assert chosen is not None
        assert alone.found.mean == chosen.found.mean
        assert alone.found.half is not None
        assert chosen.found.half is not None
        assert chosen.found.half >= alone.found.half
        assert chosen.shown in (0, alone.shown)


def test_the_method_with_the_best_worst_tenth_is_the_one_compared() -> None:
    one = [{"mean": 50.0, "worst_10": 20.0}, {"mean": 51.0, "worst_10": 21.0}]
    better = [{"mean": 49.0, "worst_10": 40.0}, {"mean": 50.0, "worst_10": 41.0}]
    found = sentences(summarised({"FedAvg": one, "AdaFed": better, "q-FFL": one}))
    assert any("Of 2 methods set against FedAvg, AdaFed has the best worst tenth" in text for text in found)
    assert any("allowing for the choice among 2" in text for text in found)


def test_what_another_method_costs_beyond_chance_is_told_too() -> None:
    one = [{"mean": 50.0 + k, "worst_10": 20.0 + k} for k in range(4)]
    best = [{"mean": 50.0 + 2 * (k % 2), "worst_10": 22.0 + k} for k in range(4)]
    worse = [{"mean": 42.0 + k + 0.1 * (k % 2), "worst_10": 20.0 + 3 * (k % 2)} for k in range(4)]
    found = sentences(summarised({"FedAvg": one, "AdaFed": best, "q-FFL": worse, "TERM": one}))
    assert [text for text in found if text.startswith("Of the others")] == [
        "Of the others, beyond chance against FedAvg: q-FFL costs 7.9 points on average."
    ]


def test_a_name_with_a_comma_stands_in_quotation_marks() -> None:
    one = [{"mean": 50.0, "worst_10": 20.0}]
    first, second, *_ = sentences(summarised({"AdaFed, gamma=1": one, "AdaFed, gamma=2": one}))
    assert first.startswith("Under “AdaFed, gamma=1” the worst")
    assert "under “AdaFed, gamma=2” and" in second


def test_methods_without_a_common_seed_are_not_compared() -> None:
    report = summarised({"FedAvg": [{"mean": 50.0, "worst_10": 20.0}]})
    other = summarised({"AdaFed": [{}, {"mean": 60.0, "worst_10": 30.0}]})
    joined = summarised({})
    object.__setattr__(joined, "runs", (*report.runs, other.runs[1]))
    assert "no seed in common" in compared(joined, "AdaFed", "FedAvg", 1)


def test_runs_on_other_data_are_no_pair() -> None:
    report = report_of(steady(76.0, 41.0, 12.0, -0.6, 3, 0.1))
    runs = [run.__class__(**{**vars(run), "checksum": run.method}) for run in report.runs]
    object.__setattr__(report, "runs", tuple(runs))
    assert report.pairs("AdaFed", "FedAvg") == []
    assert change(report, "AdaFed", "FedAvg", "mean") is None


def on(report: Report, data: dict[str, str]) -> Report:
    """The same runs, each on the data set that is said of its method, with a checksum of its own."""
    runs = [replace(run, facts={"data": {"name": data[run.method]}}, checksum=data[run.method]) for run in report.runs]
    return replace(report, runs=tuple(runs))


def test_methods_on_other_data_are_told_of_first_and_not_counted() -> None:
    one, better = [{"mean": 50.0, "worst_10": 20.0}] * 3, [{"mean": 90.0, "worst_10": 80.0}] * 3
    report = summarised({"FedAvg": one, "AdaFed": one, "q-FFL": one, "TERM, alpha=1": better})
    apart = on(report, {"FedAvg": "digits", "AdaFed": "digits", "q-FFL": "digits", "TERM, alpha=1": "fashion"})
    first, *rest = sentences(apart)
    assert first.startswith("The runs are on different data (digits, fashion): their numbers do not compare.")
    assert first.endswith("not counted here: “TERM, alpha=1”.")
    assert any("Of 2 methods set against FedAvg" in text for text in rest)
    assert not any("TERM" in text for text in rest)
    assert not any("do not compare" in text for text in sentences(on(report, dict.fromkeys(report.methods, "digits"))))


def test_methods_dealt_other_samples_are_not_counted_either() -> None:
    runs = report_of(steady(76.0, 41.0, 12.0, -0.6, 3, 0.1)).runs
    other = Report("made up", tuple(replace(run, checksum=run.method) for run in runs))
    first, *rest = sentences(other)
    assert "do not compare" in first
    assert not any("set against" in text or "no seed in common" in text for text in rest)


def test_without_an_evaluation_there_is_one_sentence() -> None:
    assert len(sentences(summarised({}))) == 1


@given(SHARE, SHARE)
def test_the_worst_off_are_told_with_their_number(mean: float, worst: float) -> None:
    text = worst_off(summarised({"FedAvg": [{"mean": mean, "worst_10": worst}]}), "FedAvg")
    assert text is not None
    found = [float(one) for one in re.findall(NUMBER, text)]
    assert found == [pytest.approx(worst, abs=0.0501), pytest.approx(mean, abs=0.0501)]


def lead(folder: Path, **given: Any) -> str:
    return sentences(gathered([made_up_run(folder, **given)]))[0]


@pytest.mark.parametrize(
    ("count", "words"),
    [
        (1, "the only client gets"),
        (3, "the worst-served client (of 3) gets"),
        (10, "the worst-served client (of 10) gets"),
        (11, "the worst-served tenth of clients (2 of 11) get"),
    ],
)
def test_the_worst_tenth_of_few_clients_is_one(tmp_path: Path, count: int, words: str) -> None:
    text = lead(tmp_path / "run", clients=[f"c{k}" for k in range(count)])
    assert f" {words} " in text
    assert text.count("client c") == min(3, count - 1)  # all of them are nobody


def test_the_worst_served_clients_are_named_with_what_they_have(tmp_path: Path) -> None:
    text = lead(tmp_path / "run", clients=["Leeds, north", *"bcdefghij"], level=0.6)
    assert "Served worst: client “Leeds, north”: 30.0\u00a0% (holds only 0 and 1); client b: " in text
    assert text.count(": ") == 4
    assert "Served worst: client 7: " in lead(tmp_path / "named", clients=["client 7", *"bcdefghij"])
    assert "Served worst" not in lead(tmp_path / "long", clients=["x" * 100, *"bcdefghij"])
    assert "holds" not in lead(tmp_path / "unknown", labels=False)


def test_clients_of_other_seeds_are_other_clients(tmp_path: Path) -> None:
    study = made_up_study(tmp_path / "dealt", {"FedAvg": 0.4})
    assert "Served worst" not in sentences(gathered([study]))[0]
    study = made_up_study(tmp_path / "fixed", {"FedAvg": 0.4}, checksum="f" * 64)
    assert " Served worst: client a: " in sentences(gathered([study]))[0]


def test_the_promise_is_told_where_it_was_measured() -> None:
    told = summarised({"FedAvg": [{"mean": 1.0, "rho": 70.0}, {"mean": 1.0, "rho": 80.0}]})
    text = promised(told, ["FedAvg"])
    assert text is not None
    assert "75.0\u00a0% under FedAvg" in text
    assert promised(summarised({"FedAvg": [{"mean": 1.0}]}), ["FedAvg"]) is None
