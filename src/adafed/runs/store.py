"""The SQLite file of a run: a row a round, a row a participant, a row a client and evaluation."""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from adafed.errors import AdafedError
from adafed.rounds.records import Evaluation, Participant, RoundRecord, Scores
from adafed.server_rules.base import client_key

VERSION = 1
SCHEMA = """
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
"""


class Store:
    """Commits a round in one transaction. Not-a-number is stored as NULL."""

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        self.path = path
        with self._told():
            if read_only:
                self._db = _readable(path)
            else:
                self._db = sqlite3.connect(path)
                # The log survives a killed process; a power cut may cost the last rounds, never the file.
                self._db.execute("PRAGMA journal_mode = WAL")
                self._db.execute("PRAGMA synchronous = NORMAL")
            found = self._db.execute("PRAGMA user_version").fetchone()[0]
            if found == 0 and not read_only:
                with self._db:
                    self._db.executescript(f"BEGIN; {SCHEMA} PRAGMA user_version = {VERSION}; COMMIT;")
            elif found != VERSION:
                raise AdafedError(f"{path} is of version {found} and this adafed reads version {VERSION}")

    def add(self, record: RoundRecord) -> None:
        with self._told(), self._db:
            row = [getattr(record, name) for name in _ROUND] + [json.dumps(record.notes)]
            self._insert("rounds", [[record.round, *row]])
            self._insert("participants", [[record.round, *one] for one in record.participants])
            self._insert("evaluations", [
                [record.round, evaluation.part, int(evaluation.personal), client, s.samples, s.loss, s.accuracy]
                for evaluation in record.evaluations
                for client, s in evaluation.scores
            ])  # fmt: skip

    def forget_after(self, round: int) -> None:
        """Remove the rows of rounds that no checkpoint confirms."""
        with self._told(), self._db:
            for table in ("rounds", "participants", "evaluations"):
                self._db.execute(f"DELETE FROM {table} WHERE round > ?", (round,))

    def last_round(self) -> int:
        with self._told():
            return int(self._db.execute("SELECT coalesce(max(round), 0) FROM rounds").fetchone()[0])

    def records(self, *, evaluated: bool = False) -> Iterator[RoundRecord]:
        """All rounds, or those with an evaluation, as they were yielded when they ran, without their timings and in the
        order of the clients' ids."""
        where = "WHERE round IN (SELECT DISTINCT round FROM evaluations)" if evaluated else ""
        columns = ", ".join(_ROUND)
        with self._told():
            rounds = self._db.execute(f"SELECT round, {columns}, notes FROM rounds {where} ORDER BY round").fetchall()
        for number, *values, notes in rounds:
            yield RoundRecord(
                round=number,
                **dict(zip(_ROUND, values, strict=True)),
                notes=json.loads(notes),
                participants=tuple(self.participants(number)),
                evaluations=tuple(self.evaluations(number)),
            )

    def participants(self, round: int) -> list[Participant]:
        columns = ", ".join(_PARTICIPANT)
        with self._told():
            rows = self._db.execute(f"SELECT {columns} FROM participants WHERE round = ?", (round,)).fetchall()
        return sorted((Participant(*row) for row in rows), key=lambda one: client_key(one.client))

    def evaluations(self, round: int) -> list[Evaluation]:
        with self._told():
            rows = self._db.execute(
                "SELECT part, personal, client, samples, loss, accuracy FROM evaluations WHERE round = ?", (round,)
            ).fetchall()
        found: dict[tuple[str, bool], list[tuple[str, Scores]]] = {}
        for part, personal, client, samples, loss, accuracy in sorted(rows, key=lambda row: client_key(row[2])):
            scores = found.setdefault((part, bool(personal)), [])
            scores.append((client, Scores(len(scores), samples, loss, accuracy)))
        return [Evaluation(part, personal, tuple(scores)) for (part, personal), scores in found.items()]

    def close(self) -> None:
        self._db.close()

    def _insert(self, table: str, rows: list[list[Any]]) -> None:
        if rows:
            marks = ", ".join("?" * len(rows[0]))
            self._db.executemany(f"INSERT INTO {table} VALUES ({marks})", [[_finite(v) for v in row] for row in rows])

    @contextmanager
    def _told(self) -> Iterator[None]:
        """SQLite's complaints in one sentence."""
        try:
            yield
        except sqlite3.Error as error:
            advice = "free some space and resume" if "full" in str(error) else "the file may be damaged"
            raise AdafedError(f"{self.path}: {error}; {advice}") from None


_ROUND = ("local_lr", "rate", "norm", "mean_norm", "condition", "negative", "rho", "mean_decrease", "skipped")
_PARTICIPANT = Participant._fields


def _readable(path: Path) -> sqlite3.Connection:
    """Reading needs a file beside the log, which cannot be made on read-only storage; nor can anybody write there."""
    where = path.resolve()
    db = sqlite3.connect(f"{where.as_uri()}?mode=ro", uri=True)
    try:
        db.execute("PRAGMA user_version").fetchone()
    except sqlite3.OperationalError:
        db.close()
        log = where.with_name(f"{where.name}-wal")
        if log.exists() and log.stat().st_size:
            raise
        db = sqlite3.connect(f"{where.as_uri()}?mode=ro&immutable=1", uri=True)
    return db


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and math.isnan(value) else value
