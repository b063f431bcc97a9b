"""Keeps the journal at a bounded number of events: the oldest go, and a snapshot stands for them.

The events that are kept begin after the snapshot `first`. A second snapshot, `middle`, is half of the allowed events
later. When as many have been written after `middle`, that becomes the first one, and the events before it are deleted:
a few with every event that is written, so that none waits long. What is left is always a snapshot and all events after
it, between half and all of the allowed number, which is what the report at the end is made of.
"""

from __future__ import annotations

import sqlite3

from offcut.control import State

#: How many events are deleted with every one that is written.
_AT_ONCE = 4


class Compaction:
    """Which events and snapshots a journal keeps. Its methods raise sqlite3.Error."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        #: The number of the event before the first that is kept; the snapshot after it is kept, too, if it is not 0.
        self.first = self._read("first")
        self._middle = self._read("middle")
        self._jobs: frozenset[str] = frozenset()
        self._lags = self._oldest() is not None

    def _read(self, key: str) -> int:
        row = self._db.execute("SELECT value FROM meta WHERE key = ?", (f"{key} snapshot",)).fetchone()
        return int(row[0]) if row is not None and row[0].isdigit() else 0

    def _write(self, key: str, number: int) -> None:
        self._db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (f"{key} snapshot", str(number)))

    def _oldest(self) -> int | None:
        """Return the oldest event that is still to be deleted."""
        row = self._db.execute("SELECT min(id) FROM events WHERE id <= ?", (self.first,)).fetchone()
        return None if row[0] is None else int(row[0])

    def note_snapshot(self, state: State) -> None:
        """Decide what is kept, now that a snapshot of this state is stored. Delete the snapshots that are not."""
        newest = state.event_id
        self._jobs = frozenset((*state.jobs, *state.sweeps))
        if newest - max(self.first, self._middle) >= max(1, state.settings.journal_events // 2):
            if self._middle > self.first:
                self.first, self._lags = self._middle, True
                self._write("first", self.first)
            self._middle = newest
            self._write("middle", newest)
        self._db.execute(
            "DELETE FROM snapshots WHERE event_id < ? AND event_id NOT IN (?, ?)", (newest, self.first, self._middle)
        )

    def trim(self) -> None:
        """Delete a few of the events that are not kept, and what the stories of nodes tell of them."""
        if not self._lags:
            return
        oldest = self._oldest()
        if oldest is None:
            self._lags = False
            return
        span = oldest, min(self.first, oldest + _AT_ONCE - 1)
        self._db.execute("DELETE FROM events WHERE id BETWEEN ? AND ?", span)
        # The story of a job or a sweep stays as long as that does.
        for (subject,) in self._db.execute(
            "SELECT DISTINCT subject FROM story WHERE event_id BETWEEN ? AND ? "
            "AND subject NOT IN (SELECT job FROM history)",
            span,
        ).fetchall():
            if subject not in self._jobs:
                self._db.execute("DELETE FROM story WHERE event_id BETWEEN ? AND ? AND subject = ?", (*span, subject))
