"""The table of measures: what it says of each, and the user's own."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adafed.errors import AdafedError
from adafed.metrics import METRICS, USUAL, Evaluated, Fairness, Metric, fairness_of, metric, value

OWN = """
import numpy as np
from adafed.metrics import Metric, worst

def gap(e):
    return e.accuracies.max() - e.accuracies.min()

def weighted(e):
    return np.float32(np.average(e.accuracies, weights=e.sizes))

def of_losses(e):
    return None if e.losses is None else int(e.losses.max())

points = Metric(gap, "gap %", direction=-1, latex="$g$", digits=1, percent=True)
seven = 7

def raises(e):
    raise ValueError("two\\nlines")

def sorts(e):
    e.accuracies.sort()

def wrong_call(e):
    return worst(e.accuracies, 0)

def nan(e):
    return float("nan")

def text(e):
    return "high"

def truth(e):
    return True

def array(e):
    return e.accuracies

def huge(e):
    return 10**400
"""
EVALUATED = dataclasses.replace(Evaluated.of([0.2, 0.8], [10, 30], [1.0, 3.0]), clients=("a", "b"), rho=0.5)


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a module of the user's."""
    name = f"own_measures_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    return name


def test_every_measure_of_fairness_is_an_entry() -> None:
    names = {field.name for field in dataclasses.fields(Fairness)} - {"clients"}
    assert names | {"rho"} == set(METRICS)
    assert set(USUAL) <= set(METRICS)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=30))
def test_what_is_printed_is_the_measure_or_a_hundred_times_it(accuracies: list[float]) -> None:
    evaluated = Evaluated.of(accuracies, [20] * len(accuracies), accuracies)
    for name, plain in vars(fairness_of(evaluated)).items():
        if name != "clients":
            assert value(name, evaluated) == (plain * 100.0 if METRICS[name].percent else plain)


def test_what_is_not_known_is_none() -> None:
    bare = Evaluated.of([0.5, 0.6])
    unknown = ("floor", "excess", "loss_std", "loss_range", "rho", "client:a")
    assert [key for key in (*METRICS, "client:a") if value(key, bare) is None] == list(unknown)


def test_a_client_is_a_measure() -> None:
    assert value("client:b", EVALUATED) == 80.0
    assert (metric("client:b").label, metric("client:b").direction) == ("b", 1)


def test_a_function_of_the_users_is_a_measure(own: str) -> None:
    assert value(f"{own}:gap", EVALUATED) == pytest.approx(0.6)
    assert value(f"{own}:weighted", EVALUATED) == pytest.approx(0.65)
    assert value(f"{own}:of_losses", EVALUATED) == 3.0
    assert value(f"{own}:of_losses", Evaluated.of([0.5])) is None
    assert (metric(f"{own}:gap").label, metric(f"{own}:gap").direction) == ("gap", 0)


def test_a_metric_of_the_users_says_how_it_is_printed(own: str) -> None:
    assert value(f"{own}:points", EVALUATED) == pytest.approx(60.0)
    assert (metric(f"{own}:points").label, metric(f"{own}:points").direction) == ("gap %", -1)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("raises", "raised ValueError('two\\nlines')"),
        ("sorts", "raised ValueError('sort array is read-only')"),
        ("wrong_call", "percent = 0 must be a whole number between 1 and 100."),
        ("nan", "returned nan; it must be a finite number, or None if unknown"),
        ("text", "returned 'high'"),
        ("truth", "returned True"),
        ("array", "returned array([0.2, 0.8])"),
        ("huge", "raised OverflowError"),
    ],
)
def test_a_formula_that_fails_is_told_by_its_name(name: str, told: str, own: str) -> None:
    with pytest.raises(AdafedError) as raised:
        value(f"{own}:{name}", EVALUATED)
    assert str(raised.value).startswith(f"the metric {own}:{name} ")
    assert told in str(raised.value)
    assert "\n" not in str(raised.value)


def test_names_that_lead_nowhere(own: str) -> None:
    for key, told in (
        ("speed", r"study.columns names 'speed'; there are mean, .*client:ID and your own as module:attribute"),
        ("nowhere_at_all:gap", "study.columns = 'nowhere_at_all:gap': there is no module"),
        (f"{own}:nothing", "has no attribute 'nothing'"),
        (f"{own}:seven", "is 7; it must be a function of an evaluation, or a Metric"),
    ):
        with pytest.raises(AdafedError, match=told):
            metric(key, "study.columns")


def test_a_metric_is_checked_when_it_is_made() -> None:
    for wrong, told in (
        ({"formula": 3}, "the formula of metric 'x' is 3"),
        ({"direction": 2}, "the direction of metric 'x' is 2; it must be 1, -1 or 0"),
        ({"digits": -1}, "the digits of metric 'x' are -1"),
    ):
        with pytest.raises(AdafedError, match=told):
            Metric(**{"formula": lambda e: math.nan, "label": "x", **wrong})  # type: ignore[arg-type]


def test_a_callers_array_stays_the_callers() -> None:
    given = np.array([0.5, 0.6])
    evaluated = Evaluated.of(given)
    given[0] = 0.1
    assert evaluated.accuracies[0] == 0.5
