"""Files of older versions: read as they are, brought up to date when they are written, whole whatever happens."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from adafed import AdafedError
from adafed.engines.station import Scores
from adafed.rounds.records import Evaluation, Participant, RoundRecord
from adafed.runs import schema
from adafed.runs.store import Store

VERSION_1 = """
CREATE TABLE rounds (
    round INTEGER PRIMARY KEY, local_lr REAL NOT NULL, rate REAL NOT NULL, norm REAL, mean_norm REAL, condition REAL,
    negative INTEGER, rho REAL, mean_decrease REAL, skipped TEXT, notes TEXT NOT NULL);
CREATE TABLE participants (
    round INTEGER NOT NULL, client TEXT NOT NULL, samples INTEGER, steps INTEGER, before REAL, after REAL, running REAL,
    accuracy REAL, stepped REAL, coefficient REAL, rate REAL, dropped TEXT,
    PRIMARY KEY (round, client)) WITHOUT ROWID;
CREATE TABLE evaluations (
    round INTEGER NOT NULL, part TEXT NOT NULL, personal INTEGER NOT NULL, client TEXT NOT NULL,
    samples INTEGER NOT NULL, loss REAL, accuracy REAL,
    PRIMARY KEY (round, part, personal, client)) WITHOUT ROWID;
INSERT INTO rounds VALUES (1, 0.1, 3.0, 0.5, 0.6, 7.0, 1, 0.75, 0.01, NULL, '{"hull": "affine"}');
INSERT INTO participants VALUES (1, 'a', 5, 2, 1.0, 0.9, 0.95, 0.8, 0.7, -0.1, 0.3, NULL);
INSERT INTO participants VALUES (1, 'b', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 'did not answer');
INSERT INTO evaluations VALUES (1, 'test', 0, 'a', 3, 0.25, 1.0);
PRAGMA user_version = 1;
"""
FIRST = RoundRecord(
    round=1, local_lr=0.1, server_rate=3.0, norm=0.5, mean_norm=0.6, condition=7.0, negative=1, rho=0.75,
    mean_decrease=0.01, notes={"hull": "affine"},
    participants=(
        Participant("a", 5, 2, 1.0, 0.9, 0.95, 0.8, 0.7, coefficient=-0.1, descent=0.3),
        Participant("b", dropped="did not answer"),
    ),
    evaluations=(Evaluation("test", False, (("a", Scores(0, 3, 0.25, 1.0)),)),),
)  # fmt: skip


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A file as version 1 left it."""
    path = tmp_path / "rounds.sqlite"
    database = sqlite3.connect(path)
    database.execute("PRAGMA journal_mode = WAL")
    database.executescript(VERSION_1)
    database.close()
    return path


def version(path: Path) -> int:
    database = sqlite3.connect(path)
    found = schema.version(database)
    database.close()
    return found


def records(path: Path) -> list[RoundRecord]:
    store = Store(path, read_only=True)
    found = list(store.records())
    store.close()
    return found


def test_an_old_file_is_read_and_stays_as_it_is(old: Path) -> None:
    before = old.read_bytes()
    assert records(old) == [FIRST]
    assert old.read_bytes() == before
    assert version(old) == 1


def test_an_old_file_that_nobody_can_write_is_read(old: Path) -> None:
    old.chmod(0o444)
    old.parent.chmod(0o555)
    try:
        assert records(old) == [FIRST]
    finally:
        old.parent.chmod(0o755)


def test_an_old_file_goes_on(old: Path) -> None:
    store = Store(old)
    assert list(store.records()) == [FIRST]
    store.add(RoundRecord(2, 0.1, 2.0, (Participant("a", descent=0.25),)))
    store.close()
    assert version(old) == schema.VERSION
    first, second = records(old)
    assert first == FIRST
    assert (second.server_rate, second.participants[0].descent) == (2.0, 0.25)


def test_a_new_file_and_one_brought_up_to_date_have_the_same_columns(old: Path, tmp_path: Path) -> None:
    Store(old).close()
    Store(tmp_path / "new.sqlite").close()
    found = []
    for path in (old, tmp_path / "new.sqlite"):
        database = sqlite3.connect(path)
        tables = ("rounds", "participants", "evaluations")
        found.append([database.execute(f"PRAGMA table_info({table})").fetchall() for table in tables])
        database.close()
    assert found[0] == found[1]


def test_whoever_was_reading_when_the_file_was_brought_up_to_date_goes_on_reading(old: Path) -> None:
    reader = Store(old, read_only=True)
    assert list(reader.records()) == [FIRST]
    Store(old).close()
    assert list(reader.records()) == [FIRST]
    reader.close()


@pytest.mark.parametrize("done", range(1, 3))
def test_killed_on_the_way_it_is_of_the_old_version_or_the_new(old: Path, done: int) -> None:
    killed = f"""
import os, signal, sys
from itertools import islice
from pathlib import Path
from adafed.runs import schema
from adafed.runs.store import Store

def dies(step):
    yield from islice(step, {done})
    os.kill(os.getpid(), signal.SIGKILL)

schema.STEPS = (schema.STEPS[0], dies(schema.STEPS[1]))
Store(Path(sys.argv[1]))
"""
    ended = subprocess.run([sys.executable, "-c", killed, str(old)], check=False)
    assert ended.returncode == -9
    assert version(old) == 1
    assert records(old) == [FIRST]
    Store(old).close()
    assert version(old) == schema.VERSION
    assert records(old) == [FIRST]


def test_a_step_that_fails_changes_nothing(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(schema, "STEPS", (schema.STEPS[0], (*schema.STEPS[1], "ALTER TABLE missing ADD COLUMN x")))
        with pytest.raises(AdafedError, match="no such table: missing"):
            Store(old)
    assert version(old) == 1
    assert records(old) == [FIRST]


def test_a_file_without_tables_is_no_run_to_read(tmp_path: Path) -> None:
    sqlite3.connect(tmp_path / "rounds.sqlite").close()
    with pytest.raises(AdafedError, match="holds no tables of a run"):
        Store(tmp_path / "rounds.sqlite", read_only=True)
