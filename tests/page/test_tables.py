"""The page's tables, and their files."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from pathlib import Path

import pytest
from made_up import HOSTILE, made_up_study, summarised

from adafed.page import gathered
from adafed.page.tables import CLIENT_HEADS, clients_csv, differences, summary, write_tables
from adafed.runs.summary import summarise
from adafed.studies.compare import comparison


@pytest.fixture
def study(tmp_path: Path) -> Path:
    return made_up_study(tmp_path / "study", {"FedAvg": 0.4, "AdaFed": 0.6}, clients=[HOSTILE, *"abcdefghi"])


@pytest.mark.parametrize("tail", [False, True])
def test_the_summary_has_the_numbers_of_compare(study: Path, tail: bool) -> None:
    report = gathered([study], tail=tail)
    table = summary(report)
    runs = [(run.method, summarise(run.source)) for run in report.runs]
    expected = comparison("", runs, report.columns, tail=tail)
    for ours, theirs in zip(table.rows, expected.rows, strict=True):
        assert ours.label == theirs.label
        for one, other in zip(ours.cells, theirs.cells, strict=True):
            assert one.values == pytest.approx(other.values)


def test_no_row_is_marked_best_of_numbers_that_do_not_compare() -> None:
    report = summarised({"FedAvg": [{"mean": 50.0}], "AdaFed": [{"mean": 60.0}]}, columns=("mean",))
    for data, marked in ((("digits", "digits"), True), (("digits", "fashion"), False)):
        runs = [replace(run, facts={"data": {"name": name}}) for run, name in zip(report.runs, data, strict=True)]
        table = summary(replace(report, runs=tuple(runs)))
        assert any(column.better for column in table.columns) == marked
        assert any("do not compare" in note for note in table.notes) != marked


def test_differences_are_paired_and_marked_where_the_interval_leaves_out_zero() -> None:
    before = [{"mean": 50.0 + k, "worst_10": 20.0} for k in range(4)]
    after = [{"mean": 52.0 + k + 0.1 * (k % 2), "worst_10": 20.0 + (-5) ** (k % 2)} for k in range(4)]
    table = differences(summarised({"FedAvg": before, "AdaFed": after}, columns=("mean", "worst_10")))
    assert table is not None
    (row,) = table.rows
    assert row.cells[0].mean == pytest.approx(2.05)
    assert row.cells[0].mark.endswith("*")
    assert not row.cells[1].mark.endswith("*")
    assert differences(summarised({"FedAvg": before})) is None


def test_files_of_the_tables(study: Path, tmp_path: Path) -> None:
    report = gathered([study])
    names = {path.name for path in write_tables(report, tmp_path / "tables")}
    assert names == {
        *(f"{table}.{ending}" for table in ("summary", "differences") for ending in ("md", "tex", "csv")),
        "clients.csv",
    }
    rows = list(csv.DictReader(io.StringIO(clients_csv(report))))
    assert tuple(rows[0]) == CLIENT_HEADS
    assert len(rows) == 10 * 6
    assert {row["client"] for row in rows} == {HOSTILE, *"abcdefghi"}
    assert HOSTILE not in summary(report).markdown()
