"""Checks, before a sweep is submitted, that its study can be stored. Without Optuna, whose import takes seconds."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from offcut.errors import InputError

#: How long a lock of another program is waited for.
_LOCK_S = 2.0


def check_storage(path: Path, study: str) -> None:
    """Raise InputError if the SQLite file of the studies is locked, read-only or damaged, or has this study already.

    Args:
        path: the file; it need not exist.
        study: the name of a study that is to be made.
    """
    if not path.exists():
        return
    try:
        with closing(sqlite3.connect(path, timeout=_LOCK_S, isolation_level=None)) as db:
            db.execute("BEGIN IMMEDIATE")
            tables = db.execute("SELECT 1 FROM sqlite_master WHERE name = 'studies'").fetchone()
            found = tables and db.execute("SELECT 1 FROM studies WHERE study_name = ?", (study,)).fetchone()
            db.execute("ROLLBACK")
    except sqlite3.Error as error:
        raise InputError(
            f"suggest: the studies cannot be stored in {path}: {error}.",
            next_step="End the program that holds it, or move the file away: offcut only writes to it.",
        ) from None
    if found:
        raise InputError(
            f"suggest: {path} has a study called {study} already, of another sweep.",
            next_step="Give this sweep another name, or delete the study.",
        )
