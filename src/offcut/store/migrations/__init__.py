"""The journal's tables, version by version, and how a journal of an older version becomes one of the next.

A new version gets a module here with a function `migrate(db)`, which is run inside one transaction: it is done whole or
not at all. Raise `VERSION` with every change of the tables or of what is in them that an older offcut would misread.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

from offcut.store.migrations import to_2, to_3, to_4

VERSION = 4

#: By the version that the migration leads to.
_STEPS: dict[int, Callable[[sqlite3.Connection], None]] = {2: to_2.migrate, 3: to_3.migrate, 4: to_4.migrate}

SCHEMA = (
    """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE settings (after_event INTEGER PRIMARY KEY, data TEXT NOT NULL);
CREATE TABLE events (
    id INTEGER PRIMARY KEY, time_s REAL NOT NULL, kind TEXT NOT NULL, data TEXT NOT NULL,
    checksum INTEGER NOT NULL, skipped TEXT
);
CREATE TABLE story (
    event_id INTEGER NOT NULL, place INTEGER NOT NULL, time_s REAL NOT NULL, subject TEXT NOT NULL, text TEXT NOT NULL,
    PRIMARY KEY (event_id, place)
);
CREATE INDEX story_of ON story (subject, event_id);
CREATE TABLE snapshots (event_id INTEGER PRIMARY KEY, data TEXT NOT NULL, checksum INTEGER NOT NULL);
"""
    + to_4.TABLES
)


def migrate(db: sqlite3.Connection, version: int) -> None:
    """Bring a journal of `version` to the newest one."""
    for newer in range(version + 1, VERSION + 1):
        db.execute("BEGIN IMMEDIATE")
        try:
            _STEPS[newer](db)
            db.execute("UPDATE meta SET value = ? WHERE key = 'version'", (str(newer),))
            db.execute("COMMIT")
        except BaseException:
            db.execute("ROLLBACK")
            raise
