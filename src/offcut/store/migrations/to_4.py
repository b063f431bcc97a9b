"""Version 4: jobs that have ended are in a table of their own, and no longer in every snapshot."""

from __future__ import annotations

import sqlite3

TABLES = """
CREATE TABLE history (job TEXT PRIMARY KEY, name TEXT NOT NULL, ended_s REAL NOT NULL, data TEXT NOT NULL);
CREATE INDEX history_by_end ON history (ended_s);
CREATE INDEX history_by_name ON history (name);
"""


def migrate(db: sqlite3.Connection) -> None:
    """Add the table. Jobs of the state come into it when the controller starts."""
    for statement in TABLES.split(";"):
        db.execute(statement)
