"""The SQLite file of a run: a row a round, a row a participant, a row a client and evaluation."""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

from adafed.errors import AdafedError
from adafed.files import on_disk, parsed
from adafed.rounds.records import Evaluation, Participant, RoundRecord, Scores
from adafed.runs.schema import TABLES, VERSION, are_tables, as_written, bring_up_to_date, selected, version
from adafed.server_rules.base import client_key

_ROUND = tuple(one.name for one in fields(RoundRecord) if one.name not in ("participants", "evaluations", "seconds"))
_PARTICIPANT = Participant._fields
_EVALUATION = ("part", "personal", "client", "samples", "loss", "accuracy")


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
            found = version(self._db)
            if not are_tables(self._db):
                raise AdafedError(f"{path} holds other things than tables of a run; it is another program's")
            if found <= VERSION and not read_only:
                bring_up_to_date(self._db)
        if found > VERSION:
            self.close()
            raise AdafedError(
                f"{path} is of version {found} and this adafed reads up to version {VERSION}; update adafed"
            )
        if found == 0 and read_only:
            self.close()
            raise AdafedError(f"{path} holds no tables of a run; it is another program's, or the run has not begun")

    def add(self, record: RoundRecord) -> None:
        row = [json.dumps(record.notes) if name == "notes" else getattr(record, name) for name in _ROUND]
        with self._told(), self._db:
            self._insert("rounds", _ROUND, [row])
            self._insert(
                "participants", ("round", *_PARTICIPANT), [[record.round, *one] for one in record.participants]
            )
            self._insert_evaluations(record.round, record.evaluations)

    def add_evaluations(self, round: int, evaluations: Sequence[Evaluation]) -> None:
        """Of a round that is there."""
        with self._told(), self._db:
            self._insert_evaluations(round, evaluations)

    def _insert_evaluations(self, round: int, evaluations: Sequence[Evaluation]) -> None:
        self._insert("evaluations", ("round", *_EVALUATION), [
            [round, evaluation.part, int(evaluation.personal), client, s.samples, s.loss, s.accuracy]
            for evaluation in evaluations
            for client, s in evaluation.scores
        ])  # fmt: skip

    def forget_after(self, round: int) -> None:
        """Remove the rows of rounds that no checkpoint confirms."""
        with self._told(), self._db:
            for table in TABLES:
                self._db.execute(f"DELETE FROM {table} WHERE round > ?", (round,))

    def last_round(self) -> int:
        with self._told():
            found = self._db.execute("SELECT coalesce(max(round), 0) FROM rounds").fetchone()[0]
        if not as_written("round", [found]):
            raise AdafedError(f"{self.path} is damaged: round in rounds holds what no run writes")
        return int(found)

    def forget_end(self, round: int, *, evaluations: bool, improvement: bool, before: bool) -> None:
        """Of a round that was the last and no longer is: what was measured in it for that reason alone. Personal models
        are other ones after the last round."""
        with self._told(), self._db:
            which = "" if evaluations else " AND personal = 1"
            self._db.execute(f"DELETE FROM evaluations WHERE round = ?{which}", (round,))
            if improvement:
                self._db.execute("UPDATE rounds SET rho = NULL, mean_decrease = NULL WHERE round = ?", (round,))
                self._db.execute("UPDATE participants SET stepped = NULL WHERE round = ?", (round,))
            if before:
                self._db.execute("UPDATE participants SET before = NULL, accuracy = NULL WHERE round = ?", (round,))

    def records(self, *, evaluated: bool = False) -> Iterator[RoundRecord]:
        """All rounds, or those with an evaluation, as they were yielded when they ran, without their timings and in the
        order of the clients' ids."""
        where = "WHERE round IN (SELECT DISTINCT round FROM evaluations)" if evaluated else ""
        for values in self._select("rounds", _ROUND, f"{where} ORDER BY round"):
            row = dict(zip(_ROUND, values, strict=True))
            number, row["notes"] = row["round"], self.noted(row["notes"])
            yield RoundRecord(
                participants=tuple(self.participants(number)), evaluations=tuple(self.evaluations(number)), **row
            )

    def participants(self, round: int) -> list[Participant]:
        rows = self._select("participants", _PARTICIPANT, "WHERE round = ?", round)
        return sorted((Participant(*row) for row in rows), key=lambda one: client_key(one.client))

    def evaluations(self, round: int) -> list[Evaluation]:
        rows = self._select("evaluations", _EVALUATION, "WHERE round = ?", round)
        found: dict[tuple[str, bool], list[tuple[str, Scores]]] = {}
        for part, personal, client, samples, loss, accuracy in sorted(rows, key=lambda row: client_key(row[2])):
            scores = found.setdefault((part, bool(personal)), [])
            scores.append((client, Scores(len(scores), samples, loss, accuracy)))
        return [Evaluation(part, personal, tuple(scores)) for (part, personal), scores in found.items()]

    def wait_for_disk(self) -> None:
        """For the log of what was committed; SQLite itself waits when it takes the log over into the file."""
        log = self.path.with_name(f"{self.path.name}-wal")
        if log.exists():
            on_disk(log)

    def close(self) -> None:
        self._db.close()

    def _insert(self, table: str, columns: Sequence[str], rows: list[list[Any]]) -> None:
        marks = ", ".join("?" * len(columns))
        self._db.executemany(
            f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})", [[_finite(v) for v in row] for row in rows]
        )

    def _select(self, table: str, columns: Sequence[str], rest: str, *values: int | str) -> list[tuple[Any, ...]]:
        with self._told():
            rows = self._db.execute(f"{selected(self._db, table, columns)} {rest}", values).fetchall()
        for name, column in zip(columns, zip(*rows, strict=True), strict=bool(rows)):
            if not as_written(name, column):
                raise AdafedError(f"{self.path} is damaged: {name} in {table} holds what no run writes")
        return rows

    def noted(self, text: str) -> dict[str, Any]:
        """A round's notes."""
        try:
            found = parsed(text)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise AdafedError(f"{self.path} is damaged: notes in rounds holds what no run writes")
        return found

    @contextmanager
    def _told(self) -> Iterator[None]:
        """SQLite's complaints in one sentence."""
        try:
            yield
        except sqlite3.Error as error:
            advice = "free some space and resume" if "full" in str(error) else "the file may be damaged"
            raise AdafedError(f"{self.path}: {error}; {advice}") from None
        except UnicodeDecodeError:  # SQLite quotes what it cannot read
            raise AdafedError(f"{self.path}: its tables cannot be read; the file may be damaged") from None


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
