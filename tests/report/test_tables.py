"""Tables: marks for the best, the four forms, and personalised methods that do not compete."""

from __future__ import annotations

import csv
import io

import pytest
from rich.console import Console

from adafed.metrics import Metric
from adafed.report.tables import HALF, Cell, Column, Row, Table, column

TABLE = Table(
    "A title",
    (Column("mean %", 1), Column("σ_a", -1), Column("chance")),
    (
        Row("one", (Cell((50.0, 52.0)), Cell((5.0, 5.0)), Cell((3.0,)))),
        Row("two", (Cell((60.0, 61.0)), Cell((9.0, 8.0)), Cell(()))),
        Row("own & model", (Cell((99.0,)), Cell((0.1,)), Cell((3.0,))), personalised=True),
        Row("three", (Cell((55.0,)), Cell((7.0,)), Cell((3.0,)))),
    ),
    ("a note",),
)


def test_best_and_second_best_follow_the_direction_of_the_column() -> None:
    assert TABLE.ranks(0) == {1: 1, 3: 2}
    assert TABLE.ranks(1) == {0: 1, 3: 2}
    assert TABLE.ranks(2) == {}


def test_equal_values_share_a_mark() -> None:
    rows = tuple(Row(str(i), (Cell((value,)),)) for i, value in enumerate([2.0, 2.0, 1.0, 0.0]))
    assert Table("", (Column("x", 1),), rows).ranks(0) == {0: 1, 1: 1, 2: 2}


def test_a_cell_is_the_mean_and_the_sample_deviation() -> None:
    cell = Cell((1.0, 3.0))
    assert cell.mean == 2.0
    assert cell.spread == pytest.approx(2**0.5)
    assert Cell((1.0,)).spread is None
    assert Cell(()).mean is None


def test_markdown_has_one_line_a_row() -> None:
    lines = TABLE.markdown().splitlines()
    assert lines[2] == "| method | mean % | σ_a | chance |"
    assert lines[4] == "| one | 51.00 ± 1.41 | **5.00 ± 0.00** | 3.00 |"
    assert lines[5] == "| two | **60.50 ± 0.71** | 8.50 ± 0.71 | – |"
    assert "own & model *" in lines[6]
    assert lines[-1].startswith("* personalised")


def test_names_are_text_in_markdown() -> None:
    head = Table("", (Column("a|b<i>"),), (Row("x|y", (Cell((1.0,)),)),)).markdown().splitlines()
    assert head[0] == "| method | a\\|b&lt;i> |"
    assert head[2].startswith("| x\\|y |")


def test_latex_escapes_what_tex_would_take() -> None:
    text = TABLE.latex()
    assert "own \\& model *" in text
    assert "\\textbf{60.50 $\\pm$ 0.71}" in text
    assert text.count("\\\\") == 5


def test_csv_keeps_every_digit() -> None:
    rows = list(csv.DictReader(io.StringIO(TABLE.csv())))
    assert float(rows[0]["mean % std over seeds"]) == pytest.approx(2**0.5, abs=0)
    assert rows[1]["chance"] == ""
    assert rows[2]["personalised"] == "yes"
    assert rows[0]["seeds"] == "2"


def test_csv_has_the_intervals_the_seeds_and_who_never_got_there() -> None:
    columns = (Column("mean %", spread=HALF), Column("mean % ≥ 40", missed="never"))
    cells = (Cell((1.5,), " ±0.25", half=0.25, seeds=5), Cell((10.0, 12.0, 14.0), " (2 of 5 never)", missed=2))
    row = next(csv.DictReader(io.StringIO(Table("", columns, (Row("one", cells),)).csv())))
    assert row == {
        "method": "one",
        "personalised": "no",
        "seeds": "5",
        "mean %": "1.5",
        "mean % half of the 95 % interval": "0.25",
        "mean % ≥ 40": "12.0",
        "mean % ≥ 40 std over seeds": "2.0",
        "mean % ≥ 40 never": "2",
    }


def test_the_terminal_form_fits_80_columns_with_seven_columns() -> None:
    columns = tuple(
        Column(label, 1) for label in ("mean %", "σ_a", "chance", "σ_a left", "worst 10%", "best 10%", "ρ %")
    )
    row = Row("AdaFed", tuple(Cell((90.1, 92.3)) for _ in columns))
    console = Console(width=80, file=io.StringIO())
    console.print(Table("", columns, (row,)).rich())
    assert isinstance(console.file, io.StringIO)
    assert "…" not in console.file.getvalue()


@pytest.mark.parametrize("width", [20, 30, 45, 60, 80, 120])
def test_no_number_is_cut_on_a_narrow_terminal(width: int) -> None:
    columns = tuple(Column(label, 1) for label in ("mean %", "σ_a", "worst 10%", "best 10%"))
    rows = [
        Row(f"adafed(gamma={k}.0), seed {k}", tuple(Cell((10.0 * c + k, 10.5 * c + k)) for c in range(4)))
        for k in (1, 2)
    ]
    console = Console(width=width, file=io.StringIO())
    table = Table("A title", columns, tuple(rows), ("a note",))
    console.print(table.rich())
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert "…" not in text
    assert all(len(line) <= width for line in text.splitlines())
    assert text.count("A title") == text.count("a note") == 1
    for line in table._texts("±", fewer=1):
        assert all(number in text for number in line)


def test_a_column_is_made_from_a_metric() -> None:
    assert column("kl") == Column("KL(a‖u)", -1, "KL ($a\\|u$)", 4)
    assert Column.of(Metric(lambda e: 0.0, "x", 1, digits=0)) == Column("x", 1, None, 0)
