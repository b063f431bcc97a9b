"""What is said where SQLite cannot use the journal's database."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from offcut.errors import StoreError

#: The next step where the journal is damaged.
WHAT_TO_DO = (
    "See what is wrong with: offcut journal check; save what can be saved with: offcut journal repair. Or restore it "
    "from a copy, or choose another --state to begin again."
)
#: SQLite's codes for a damaged database, which neither the disk nor permissions explain.
_DAMAGED = {sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}


def unusable(path: Path, error: Exception) -> StoreError:
    """Return the error for what SQLite or the disk says, with the next step."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
    if (
        isinstance(error, sqlite3.DatabaseError)
        and not isinstance(error, sqlite3.ProgrammingError)
        and code in _DAMAGED
    ):
        return StoreError(f"The journal {path} is damaged: {error}.", next_step=WHAT_TO_DO)
    return StoreError(
        f"The journal {path} cannot be used: {error}.",
        next_step="Is the disk full or read-only? Choose another --state.",
    )
