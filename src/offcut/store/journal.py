"""The journal: every event in order, the story that it tells, and now and then the whole state.

State = fold(events). An event is written before its effects are carried out; after a crash the fold gives the same
state, its effects are thrown away, and the controller compares what it believes with what the cluster and the agents
report.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import Field, TypeAdapter, ValidationError
from pydantic_core import to_json

from offcut.control import Settings, State, step
from offcut.errors import OffcutError, StoreError
from offcut.model.effects import Tell
from offcut.model.events import Event

#: Of the tables and of what is in them; another version is refused.
VERSION = 1
#: How many events may have to be folded at a start.
SNAPSHOT_EVERY = 2000

_SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS events (
    id INTEGER PRIMARY KEY, time_s REAL NOT NULL, kind TEXT NOT NULL, data TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS story (
    event_id INTEGER NOT NULL, place INTEGER NOT NULL, time_s REAL NOT NULL, subject TEXT NOT NULL, text TEXT NOT NULL,
    PRIMARY KEY (event_id, place)
);
CREATE INDEX IF NOT EXISTS story_of ON story (subject, event_id);
CREATE TABLE IF NOT EXISTS snapshots (event_id INTEGER PRIMARY KEY, data TEXT NOT NULL);
"""

_EVENT: TypeAdapter[Event] = TypeAdapter(Annotated[Event, Field(discriminator="kind")])
_STATE: TypeAdapter[State] = TypeAdapter(State)
_SETTINGS: TypeAdapter[Settings] = TypeAdapter(Settings)


_Item = TypeVar("_Item")


def _json(item: Event | State | Settings) -> str:
    # A loss may be NaN and a window's end infinite: JSON's usual null would not come back as what it was.
    return to_json(item, inf_nan_mode="constants").decode()


class Journal:
    """One writer: the controller that holds the state directory's lock."""

    def __init__(self, path: Path) -> None:
        """Open or create it. Raises StoreError where that cannot be."""
        self._path = path
        try:
            self._db = sqlite3.connect(path, isolation_level=None)
            self._db.execute("PRAGMA journal_mode=WAL")
            # A crash of this program loses nothing; one of the whole machine may lose the last moments.
            self._db.execute("PRAGMA synchronous=NORMAL")
            self._db.executescript(_SCHEMA)
            self._check_version()
        except sqlite3.Error as error:
            raise _unusable(path, error) from None

    def _check_version(self) -> None:
        row = self._db.execute("SELECT value FROM meta WHERE key = 'version'").fetchone()
        if row is None:
            self._db.execute("INSERT INTO meta VALUES ('version', ?)", (str(VERSION),))
        elif row[0] != str(VERSION):
            raise StoreError(
                f"The journal {self._path} has version {row[0]}, this offcut writes version {VERSION}.",
                next_step="Choose another --state, or run the offcut that wrote it.",
            )

    def load(self, settings: Settings) -> State:
        """The state that the journal tells: the newest snapshot and every event after it.

        `settings` hold from now on; a new journal starts with them. Raises StoreError where it cannot be read.
        """
        row = self._db.execute("SELECT event_id, data FROM snapshots ORDER BY event_id DESC LIMIT 1").fetchone()
        if row is not None:
            state = self._read(_STATE, row[1], f"the snapshot after event {row[0]}")
        else:
            first = self._db.execute("SELECT value FROM meta WHERE key = 'settings'").fetchone()
            state = State(settings=self._read(_SETTINGS, first[0], "the settings") if first else settings)
        for number, event in self.events(after=state.event_id):
            if number != state.event_id + 1:
                raise self._broken(f"event {state.event_id + 1} is missing")
            step(state, event)
        if state.settings != settings:
            # A fold must repeat every decision: what was decided under other settings is fixed by a snapshot.
            state.settings = settings
            self.snapshot(state)
        if state.event_id == 0:
            self._db.execute("INSERT OR REPLACE INTO meta VALUES ('settings', ?)", (_json(settings),))
        return state

    def events(self, after: int = 0) -> Iterator[tuple[int, Event]]:
        """(number, event) for every event after number `after`."""
        for number, data in self._db.execute("SELECT id, data FROM events WHERE id > ? ORDER BY id", (after,)):
            yield number, self._read(_EVENT, data, f"event {number}")

    def _read(self, kind: TypeAdapter[_Item], data: str, what: str) -> _Item:
        try:
            return kind.validate_json(data)
        except (ValidationError, OffcutError):
            raise self._broken(f"{what} cannot be read") from None

    def _broken(self, fault: str) -> StoreError:
        return StoreError(
            f"The journal {self._path} is damaged: {fault}.",
            next_step="Restore it from a copy, or choose another --state to begin anew.",
        )

    def first_settings(self) -> Settings:
        """What the journal began with."""
        row = self._db.execute("SELECT value FROM meta WHERE key = 'settings'").fetchone()
        return self._read(_SETTINGS, row[0], "the settings") if row else Settings()

    def append(self, number: int, event: Event) -> None:
        """Write event `number`, the one after the last. Raises StoreError where the disk is full or read-only."""
        try:
            self._db.execute(
                "INSERT INTO events VALUES (?, ?, ?, ?)",
                (number, event.time_s, event.kind, _json(event)),
            )
        except sqlite3.Error as error:
            raise _unusable(self._path, error) from None

    def tell(self, time_s: float, lines: list[Tell]) -> None:
        """Keep lines of the story; idempotent, for they are keyed by cause and index."""
        with suppress(sqlite3.Error):
            self._db.executemany(
                "INSERT OR REPLACE INTO story VALUES (?, ?, ?, ?, ?)",
                [(line.cause, line.index, time_s, line.subject, line.text) for line in lines],
            )

    def story(self, subject: str, last: int = 100) -> list[tuple[float, str]]:
        """(time_s, text) of what happened to a job or a node, oldest first."""
        rows = self._db.execute(
            "SELECT time_s, text FROM story WHERE subject = ? ORDER BY event_id DESC, place DESC LIMIT ?",
            (subject, last),
        ).fetchall()
        return [(time_s, text) for time_s, text in reversed(rows)]

    def snapshot(self, state: State) -> None:
        """Keep the whole state; older snapshots go."""
        try:
            self._db.execute("INSERT OR REPLACE INTO snapshots VALUES (?, ?)", (state.event_id, _json(state)))
            self._db.execute("DELETE FROM snapshots WHERE event_id < ?", (state.event_id,))
        except sqlite3.Error as error:
            raise _unusable(self._path, error) from None

    def close(self) -> None:
        self._db.close()


def _unusable(path: Path, error: sqlite3.Error) -> StoreError:
    return StoreError(
        f"The journal {path} cannot be used: {error}.",
        next_step="Is the disk full or read-only? Choose another --state.",
    )
