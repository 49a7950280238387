"""The SQLite file gives back what it was given."""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from pathlib import Path

import pytest

import adafed
from adafed import AdafedError
from adafed.engines.station import Scores
from adafed.rounds.records import Evaluation, Participant, RoundRecord
from adafed.runs.schema import VERSION
from adafed.runs.store import Store


def record(round: int) -> RoundRecord:
    people = (Participant("a", 5, 2, 1.0, None, 0.5, 0.9, 0.8, -0.1, 0.3), Participant("b", dropped="did not answer"))
    scores = (("a", Scores(0, 3, 0.25, 1.0)), ("b", Scores(1, 0, None, None)))
    return RoundRecord(
        round, 0.1, 1.0, people, norm=float("nan"), negative=1, rho=0.5, notes={"hull": "affine"},
        evaluations=(Evaluation("test", False, scores), Evaluation("test", True, scores)),
    )  # fmt: skip


def test_records_come_back(tmp_path: Path) -> None:
    store = Store(tmp_path / "rounds.sqlite")
    for round in (1, 2, 3):
        store.add(record(round))
    (first, *_) = store.records()
    assert first.participants == record(1).participants
    assert {(e.part, e.personal): e.scores for e in first.evaluations} == {
        (e.part, e.personal): e.scores for e in record(1).evaluations
    }
    assert first.norm is None
    assert first.notes == {"hull": "affine"}
    store.forget_after(1)
    assert store.last_round() == 1
    assert [r.round for r in store.records()] == [1]
    store.close()
    again = Store(tmp_path / "rounds.sqlite", read_only=True)
    assert again.last_round() == 1
    with pytest.raises(AdafedError, match="readonly"):
        again.add(record(2))
    again.close()


def test_a_round_is_kept_whole_or_not_at_all(tmp_path: Path) -> None:
    store = Store(tmp_path / "rounds.sqlite")
    twice = record(1)
    twice = RoundRecord(1, 0.1, 1.0, (*twice.participants, twice.participants[0]))
    with pytest.raises(AdafedError, match="UNIQUE constraint"):
        store.add(twice)
    assert store.last_round() == 0
    store.close()


def test_a_file_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    Store(tmp_path / "rounds.sqlite").close()
    database = sqlite3.connect(tmp_path / "rounds.sqlite")
    database.execute("PRAGMA user_version = 99")
    database.close()
    for read_only in (False, True):
        with pytest.raises(
            AdafedError, match=rf"is of version 99 and this adafed reads up to version {VERSION}; update"
        ):
            Store(tmp_path / "rounds.sqlite", read_only=read_only)


WRONG_CELLS = [
    ("rounds", "notes", "not JSON"),
    ("rounds", "notes", "[1]"),
    ("rounds", "notes", "[" * 100_000),
    ("rounds", "norm", "long"),
    ("rounds", "skipped", b"\xff"),
    ("participants", "coefficient", "much"),
    ("participants", "client", b"blob"),
    ("participants", "samples", 1.5),
    ("evaluations", "client", b"blob"),
    ("evaluations", "accuracy", "all of it"),
    ("evaluations", "part", b"test"),
]


@pytest.mark.parametrize(("table", "column", "value"), WRONG_CELLS, ids=range(len(WRONG_CELLS)))
def test_a_cell_that_no_run_writes_is_told(table: str, column: str, value: object, tmp_path: Path) -> None:
    from adafed.page.reading import read_run
    from adafed.runs.summary import summarise

    config = adafed.config_from({"rounds": 2, "model": "logistic", "run": {"workers": 0}})
    list(adafed.simulate(config, directory=tmp_path / "run"))
    db = sqlite3.connect(tmp_path / "run" / "rounds.sqlite")
    with db:
        one = {"rounds": "", "participants": " AND client = '3'", "evaluations": " AND client = '3' AND part = 'test'"}
        db.execute(f"UPDATE {table} SET {column} = ? WHERE round = 2{one[table]}", (value,))
    db.close()
    with pytest.raises(AdafedError, match="is damaged"):
        summarise(tmp_path / "run")
    with suppress(AdafedError):  # which reads no more than it shows
        read_run(tmp_path / "run")


def test_a_view_in_place_of_a_table_is_not_read(tmp_path: Path) -> None:
    """It could count for ever."""
    db = sqlite3.connect(tmp_path / "rounds.sqlite")
    endless = "WITH RECURSIVE n(round) AS (SELECT 1 UNION ALL SELECT round + 1 FROM n) SELECT round FROM n"
    db.execute(f"CREATE VIEW rounds AS {endless}")
    db.execute("PRAGMA user_version = 2")
    db.close()
    with pytest.raises(AdafedError, match="other things than tables"):
        Store(tmp_path / "rounds.sqlite", read_only=True)
