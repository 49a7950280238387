"""The tables of a run's SQLite file, version by version: how they are made, brought up to date, and read when old."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence

# Step n takes a file of version n to version n + 1; a new file is of version 0 and takes them all. A step that has been
# released is never changed: what it left behind lies in users' directories.
STEPS: Sequence[Iterable[str]] = (
    (
        """CREATE TABLE rounds (
        round INTEGER PRIMARY KEY, local_lr REAL NOT NULL, rate REAL NOT NULL, norm REAL, mean_norm REAL,
        condition REAL, negative INTEGER, rho REAL, mean_decrease REAL, skipped TEXT, notes TEXT NOT NULL)""",
        """CREATE TABLE participants (
        round INTEGER NOT NULL, client TEXT NOT NULL, samples INTEGER, steps INTEGER, before REAL, after REAL,
        running REAL, accuracy REAL, stepped REAL, coefficient REAL, rate REAL, dropped TEXT,
        PRIMARY KEY (round, client)) WITHOUT ROWID""",
        """CREATE TABLE evaluations (
        round INTEGER NOT NULL, part TEXT NOT NULL, personal INTEGER NOT NULL, client TEXT NOT NULL,
        samples INTEGER NOT NULL, loss REAL, accuracy REAL,
        PRIMARY KEY (round, part, personal, client)) WITHOUT ROWID""",
    ),
    (
        "ALTER TABLE rounds RENAME COLUMN rate TO server_rate",
        "ALTER TABLE participants RENAME COLUMN rate TO descent",
    ),
)
VERSION = len(STEPS)
# What stands for a column of today in the files of an older version, which are read as they are: its name in them, or
# NULL where they have none.
OLD_NAMES: dict[int, dict[str, dict[str, str]]] = {
    1: {"rounds": {"server_rate": "rate"}, "participants": {"descent": "rate"}},
}


# What the columns of today hold. SQLite itself puts anything into any column.
NUMBERS = (int, float)
KINDS: dict[str, tuple[type, ...]] = {
    "round": (int,), "negative": (int,), "samples": (int,), "steps": (int,), "personal": (int,),
    "client": (str,), "part": (str,), "skipped": (str,), "notes": (str,), "dropped": (str,),
} | dict.fromkeys(
    ("local_lr", "server_rate", "norm", "mean_norm", "condition", "rho", "mean_decrease", "before", "after", "running",
     "accuracy", "stepped", "coefficient", "descent", "loss"),
    NUMBERS,
)  # fmt: skip
ALWAYS = ("round", "client", "part", "personal", "notes", "local_lr", "server_rate")  # columns without gaps
TABLES = ("rounds", "participants", "evaluations")


def are_tables(db: sqlite3.Connection) -> bool:
    """Whether the three are tables: a view may compute without end, and reading it must not."""
    found = db.execute("SELECT name, type FROM sqlite_master WHERE name IN (?, ?, ?)", TABLES).fetchall()
    return all(kind == "table" for _, kind in found)


def as_written(column: str, values: Sequence[object]) -> bool:
    """Whether a column holds what a run writes there."""
    kinds = KINDS.get(column)
    if kinds is None:
        return True
    return {type(value) for value in values} <= {*kinds, *(() if column in ALWAYS else (type(None),))}


def version(db: sqlite3.Connection) -> int:
    """0 for a file without tables."""
    return int(db.execute("PRAGMA user_version").fetchone()[0])


def bring_up_to_date(db: sqlite3.Connection) -> None:
    """Take the steps that are missing, each in one transaction together with its number: a process that is killed
    leaves the file as it was before the step or after it."""
    while version(db) < VERSION:
        with db:
            db.execute("BEGIN IMMEDIATE")
            found = version(db)  # nobody else can write from here on
            if found < VERSION:
                for statement in STEPS[found]:
                    db.execute(statement)
                db.execute(f"PRAGMA user_version = {found + 1}")


def selected(db: sqlite3.Connection, table: str, columns: Iterable[str]) -> str:
    """`SELECT ... FROM table` with the columns of today, whatever version the file is of."""
    old = OLD_NAMES.get(version(db), {}).get(table, {})
    return f"SELECT {', '.join(old.get(name, name) for name in columns)} FROM {table}"
