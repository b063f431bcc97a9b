"""Version 2: rows have checksums, events that could not be answered are marked, settings are kept with their event."""

from __future__ import annotations

import json
import sqlite3
from contextlib import suppress

from offcut.store.row_format import checksum


def migrate(db: sqlite3.Connection) -> None:
    db.create_function("checksum", 2, checksum, deterministic=True)
    db.execute("ALTER TABLE events ADD COLUMN checksum INTEGER NOT NULL DEFAULT 0")
    db.execute("ALTER TABLE events ADD COLUMN skipped TEXT")
    db.execute("UPDATE events SET checksum = checksum(id, data)")
    db.execute("ALTER TABLE snapshots ADD COLUMN checksum INTEGER NOT NULL DEFAULT 0")
    db.execute("UPDATE snapshots SET checksum = checksum(event_id, data)")
    db.execute("CREATE TABLE settings (after_event INTEGER PRIMARY KEY, data TEXT NOT NULL)")
    db.execute("INSERT INTO settings SELECT 0, value FROM meta WHERE key = 'settings'")
    # Version 1 did not keep settings that came later; the newest snapshot knows those that held last.
    for event_id, data in db.execute("SELECT event_id, data FROM snapshots").fetchall():
        with suppress(ValueError, KeyError, TypeError):
            given = json.dumps(json.loads(data)["settings"])
            db.execute("INSERT OR REPLACE INTO settings VALUES (?, ?)", (event_id, given))
    db.execute("DELETE FROM meta WHERE key = 'settings'")
