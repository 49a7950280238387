"""The paper's numbers: the data file is whole, and its flags are exactly what arithmetic on the numbers gives."""

from __future__ import annotations

import json
from importlib import resources

import pytest

from adafed import paper
from adafed.errors import AdafedError


def test_every_setup_has_a_table_and_every_row_every_column() -> None:
    assert {paper.table(name).setup_name for name in paper.tables()} == set(paper.setups())
    for name in paper.tables():
        table = paper.table(name)
        assert table.name == name
        for method in table.methods:
            assert tuple(table.rows[method]) == table.columns


def test_accuracies_are_percentages_and_divergences_small() -> None:
    for name in paper.tables():
        table = paper.table(name)
        for method in table.methods:
            for metric in table.columns:
                assert 0 <= paper.value(name, method, metric).value <= (1 if metric == "kl" else 100)


def test_gamma_tables_have_a_row_for_each_value_of_the_grid() -> None:
    rows = tuple(f"gamma={value:g}" for value in paper.grid("AdaFed")["gamma"])
    sweeps = [name for name in paper.tables() if name.endswith("-gamma")]
    assert len(sweeps) == 11
    for name in sweeps:
        assert paper.table(name).methods == rows


def test_stored_flags_are_the_computed_ones() -> None:
    assert {name: paper.table(name).flags for name in paper.tables() if paper.table(name).flags} == paper.audit()


def test_flags_name_existing_numbers() -> None:
    text = resources.files("adafed.paper").joinpath("adafed.json").read_text(encoding="utf-8")
    for name, methods in json.loads(text)["flags"].items():
        for method, metrics in methods.items():
            for metric in metrics:
                assert not paper.value(name, method, metric).trusted


@pytest.mark.parametrize(
    ("table", "method", "metric"),
    [
        *(
            ("cifar10-1", method, "std")
            for method in ("FedAvg", "q-FFL", "FedMGDA+", "FedFA", "TERM", "Ditto", "AdaFed")
        ),
        ("cifar10-2", "FedFA", "std"),
        ("cifar100-2", "AdaFed", "std"),
        ("clothing1m", "AdaFed", "std"),
        ("clothing1m", "FedCorr + AdaFed", "std"),
        *(("shakespeare-1", method, "std") for method in ("FedAvg", "q-FFL", "FedMGDA+", "AFL", "TERM", "AdaFed")),
        ("shakespeare-1", "Ditto", "mean"),
        *(("femnist-original", method, "angle") for method in ("FedAvg", "AdaFed")),
        *(("femnist-skewed", method, "angle") for method in ("FedAvg", "AdaFed")),
        *(("fashion", method, "std") for method in ("FedAvg", "q-FFL", "FedMGDA+", "FedFA", "AdaFed")),
        ("cifar10-1", "AdaFed", "best"),
        ("fashion", "AdaFed", "shirt"),
        ("fashion", "AdaFed", "t-shirt"),
    ],
)
def test_known_contradictions_are_flagged(table: str, method: str, metric: str) -> None:
    number = paper.value(table, method, metric)
    assert not number.trusted
    assert number.reason


@pytest.mark.parametrize("table", ["cifar100-1", "shakespeare-2", "cinic10", "tinyimagenet"])
def test_consistent_tables_are_trusted_throughout(table: str) -> None:
    found = paper.table(table)
    assert all(found.number(method, metric).trusted for method in found.methods for metric in found.columns)


def test_numbers_read_as_printed() -> None:
    assert paper.value("cifar10-2", "AdaFed", "mean") == paper.Number(64.80, True)
    assert paper.value("tinyimagenet", "q-FFL", "best").value == 23.72
    assert paper.value("femnist-skewed", "Ditto", "kl").value == 0.022
    assert paper.table("cifar100-1-e20").setup["local_epochs"] == 20
    assert paper.table("cifar100-1").setup["local_epochs"] == 1


def test_best_values_are_on_the_grid() -> None:
    for setup in paper.setups():
        for method in ("AdaFed", "q-FFL", "TERM", "AFL", "Ditto", "FedMGDA+", "FedFA"):
            found = paper.best(setup, method)
            for key, value in (found or {}).items():
                assert value in paper.grid(method)[key]


def test_best_of_a_table_is_that_of_its_setup_and_none_where_the_paper_is_silent() -> None:
    assert paper.best("cifar100-2-e10", "q-FFL") == {"q": 0.1}
    assert paper.best("shakespeare-1", "AdaFed") == {"gamma": 0.1}
    assert paper.best("cifar10-1", "TERM") is None
    assert paper.best("cifar10-1", "FedAvg") == {}


@pytest.mark.parametrize(
    "ask",
    [
        lambda: paper.table("mnist"),
        lambda: paper.value("fashion", "FedSGD", "mean"),
        lambda: paper.value("fashion", "FedAvg", "worst"),
        lambda: paper.grid("FedSGD"),
        lambda: paper.best("mnist", "AdaFed"),
    ],
)
def test_unknown_names_are_told_with_the_choices(ask: object) -> None:
    with pytest.raises(AdafedError, match="take one of"):
        ask()  # type: ignore[operator]
