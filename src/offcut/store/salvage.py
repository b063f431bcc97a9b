"""Finds out what can still be read of a damaged journal, and writes that to a new journal.

Nothing here changes the journal that is looked at: everything is done with a copy.
"""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ValidationError

from offcut.control import State
from offcut.errors import OffcutError
from offcut.store import migrations
from offcut.store.journal import Journal
from offcut.store.row_format import EVENT, SETTINGS, STATE, checksum

_WAL = "-wal"


@dataclass(slots=True)
class Findings:
    """The results of `look`. Numbers are of events."""

    version: int = 0
    #: The events from the first on that can be read, up to this one; 0: not even the first.
    intact: int = 0
    #: The newest snapshot that can be read, and the last of the events after it that can.
    snapshot: int | None = None
    after_snapshot: int = 0
    #: The highest number of an event or snapshot that can be found.
    last: int = 0
    #: What is wrong, in sentences.
    faults: list[str] = field(default_factory=list)

    @property
    def base(self) -> int:
        """The event at which the fold that comes furthest begins: the snapshot's, or 0."""
        return self.snapshot if self.snapshot is not None and self.after_snapshot >= self.intact else 0

    @property
    def end(self) -> int:
        """The last event that can be saved."""
        return max(self.intact, self.after_snapshot)


def copy(journal: Path, place: Path, *, live: bool) -> Path:
    """Make a copy of the journal in the directory `place`. `live`: a controller may be writing to it.

    Raises OSError, or sqlite3.Error for one that is live.
    """
    if live:
        with closing(sqlite3.connect(journal)) as there, closing(sqlite3.connect(place / journal.name)) as here:
            there.backup(here)
        return place / journal.name
    for suffix in ("", _WAL):
        with suppress(FileNotFoundError):
            shutil.copy(f"{journal}{suffix}", f"{place / journal.name}{suffix}")
    return place / journal.name


def look(path: Path) -> Findings:
    """Read everything in a copy of a journal, as far as that is possible."""
    found = Findings()
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        try:
            row = db.execute("SELECT value FROM meta WHERE key = 'version'").fetchone()
            found.version = int(row[0])
            for (line,) in db.execute("PRAGMA quick_check(5)"):
                if line != "ok":
                    found.faults.append(f"SQLite finds: {' '.join(str(line).split())}.")
        except (sqlite3.Error, ValueError, TypeError) as error:
            found.faults.append(f"It is not a database of offcut, or its first pages are damaged: {error}.")
        if found.version > migrations.VERSION:
            return found
        found.last = max(_highest(db, "events", "id"), _highest(db, "snapshots", "event_id"))
        for event_id, fault in _snapshots(db):
            if fault:
                found.faults.append(fault)
            else:
                found.snapshot = event_id
                break
        # Events before the first one were deleted on purpose if a snapshot replaces them.
        if found.snapshot is None or _lowest(db) <= 1:
            found.intact = _run(db, 0, found)
        if found.snapshot is not None:
            further = found.snapshot > found.intact
            found.after_snapshot = _run(db, found.snapshot, found) if further else found.intact
    return found


def _lowest(db: sqlite3.Connection) -> int:
    """Return the number of the first event that is there; 0 if that cannot be seen."""
    with suppress(sqlite3.Error):
        return int(db.execute("SELECT min(id) FROM events").fetchone()[0] or 2)
    return 0


def _highest(db: sqlite3.Connection, table: str, key: str) -> int:
    with suppress(sqlite3.Error):
        return int(db.execute(f"SELECT max({key}) FROM {table}").fetchone()[0] or 0)
    return 0


def _has_checksums(db: sqlite3.Connection, table: str) -> bool:
    return any(row[1] == "checksum" for row in db.execute(f"PRAGMA table_info({table})"))


def _run(db: sqlite3.Connection, after: int, found: Findings) -> int:
    """Return the last of the events after number `after` that can be read without a gap. Note why it is the last."""
    number = after
    try:
        for row in _events(db, after):
            if row[0] != number + 1:
                found.faults.append(f"Event {number + 1} is missing.")
                return number
            if fault := _event_fault(*row[:3]):
                found.faults.append(fault)
                return number
            number += 1
    except sqlite3.Error as error:
        found.faults.append(f"Events after number {number} cannot be read: {error}.")
        return number
    if number < found.last:
        found.faults.append(f"Events after number {number} are missing; there were {found.last}.")
    return number


def _events(db: sqlite3.Connection, after: int) -> Iterator[tuple[int, str, int | None, float, str, str | None]]:
    more = "checksum, time_s, kind, skipped" if _has_checksums(db, "events") else "NULL, time_s, kind, NULL"
    yield from db.execute(f"SELECT id, data, {more} FROM events WHERE id > ? ORDER BY id", (after,))


def _event_fault(number: int, data: str, check: int | None) -> str:
    if check is not None and check != checksum(number, data):
        return f"Event {number} is not what was written."
    try:
        EVENT.validate_json(data)
    except (ValidationError, OffcutError, TypeError):
        return f"Event {number} cannot be read by this version of offcut."
    return ""


def _snapshots(db: sqlite3.Connection) -> Iterator[tuple[int, str]]:
    """Return (event, what is wrong with the snapshot after it), the newest first."""
    try:
        more = "checksum" if _has_checksums(db, "snapshots") else "NULL"
        for number, data, check in db.execute(f"SELECT event_id, data, {more} FROM snapshots ORDER BY event_id DESC"):
            fault = ""
            if check is not None and check != checksum(number, data):
                fault = f"The snapshot after event {number} is not what was written."
            else:
                try:
                    STATE.validate_json(data)
                except (ValidationError, OffcutError, TypeError):
                    fault = f"The snapshot after event {number} cannot be read by this version of offcut."
            yield number, fault
    except sqlite3.Error as error:
        yield 0, f"Snapshots cannot be read: {error}."


def rebuild(source: Path, found: Findings, target: Path) -> State:
    """Write what can be saved of `source`, a copy, to a new journal. Return the state that it leads to.

    Raises OffcutError where that cannot be folded.
    """
    Journal(target).close()
    with closing(sqlite3.connect(source, isolation_level=None)) as old, closing(sqlite3.connect(target)) as new:
        base = found.base
        # Events before a snapshot are kept if all of them are there, because the report begins with the first.
        first = 0 if found.intact >= base else base
        for number, data, _, time_s, kind, skipped in _saved(_events(old, first)):
            if number > found.end:
                break
            row = (number, time_s, kind, data, checksum(number, data), skipped)
            new.execute("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?)", row)
        if base:
            data = old.execute("SELECT data FROM snapshots WHERE event_id = ?", (base,)).fetchone()[0]
            new.execute("INSERT INTO snapshots VALUES (?, ?, ?)", (base, data, checksum(base, data)))
        where = "meta WHERE key = 'settings'" if found.version == 1 else "settings"
        what = "0, value" if found.version == 1 else "after_event, data"
        for after, data in _saved(old.execute(f"SELECT {what} FROM {where}")):
            with suppress(ValidationError, OffcutError, TypeError):
                SETTINGS.validate_json(data)
                new.execute("INSERT OR REPLACE INTO settings VALUES (?, ?)", (after, data))
        for row in _saved(old.execute("SELECT event_id, place, time_s, subject, text FROM story")):
            if row[0] <= found.end:
                new.execute("INSERT OR REPLACE INTO story VALUES (?, ?, ?, ?, ?)", row)
        if found.version >= 4:
            for row in _saved(old.execute("SELECT job, name, ended_s, data FROM history")):
                new.execute("INSERT OR REPLACE INTO history VALUES (?, ?, ?, ?)", row)
        new.commit()
    with closing(Journal(target)) as journal:
        state = journal.fold()
        journal.snapshot(state)
    return state


def _saved(rows: Iterator[tuple]) -> Iterator[tuple]:  # type: ignore[type-arg]
    """Yield the rows up to the first that cannot be read."""
    with suppress(sqlite3.Error):
        yield from rows
