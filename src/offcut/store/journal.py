"""The journal: every event in order, the story that it tells, and now and then the whole state.

State = fold(events). An event is written before its effects are carried out; after a crash the fold gives the same
state, its effects are thrown away, and the controller compares what it believes with what the cluster and the agents
report. An event that `step` cannot answer is marked, and is passed over by every fold.
"""

from __future__ import annotations

import math
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from offcut.advisor import load as load_curve_model
from offcut.control import Settings, State, skip, step
from offcut.errors import InputError, OffcutError, StoreError
from offcut.model.effects import WriteLog
from offcut.model.events import Event
from offcut.process import clocks
from offcut.store import migrations
from offcut.store.compaction import Compaction
from offcut.store.database_errors import WHAT_TO_DO, unusable
from offcut.store.history import History
from offcut.store.journal_figures import JournalFigures
from offcut.store.last_event import LastEvent
from offcut.store.migrations import VERSION
from offcut.store.row_format import EVENT, SETTINGS, STATE, Item, checksum, encode

#: How many events may have to be folded at a start.
SNAPSHOT_EVERY = 2000


class Journal:
    """The journal in SQLite. It has one writer: the controller that holds the state directory's lock."""

    def __init__(
        self,
        path: Path,
        *,
        connect: Callable[[Path], sqlite3.Connection] = lambda path: sqlite3.connect(path, isolation_level=None),
        fsync: Callable[[int], None] | None = None,
    ) -> None:
        """Open or create the journal; one of an older version is migrated. Raises StoreError if that fails.

        `connect` opens the database, and `fsync` makes sure that what was written to an open file is on the disk.
        """
        self._path = path
        self._fsync = fsync
        self._wal: int | None = None
        self._last = LastEvent(path)
        #: Messages about how the journal was read.
        self.remarks: list[str] = []
        self.figures = JournalFigures()
        try:
            self._db = connect(path)
            self._in_wal = self._db.execute("PRAGMA journal_mode=WAL").fetchone()[0] == "wal"
            # A crash of this program loses nothing; for one of the whole machine see `sync`. Some file systems have no
            # write-ahead log: there every commit is synced.
            self._db.execute(f"PRAGMA synchronous={'NORMAL' if self._in_wal else 'FULL'}")
            if self._db.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone() is None:
                self._create()
            elif (version := self._version()) < VERSION:
                migrations.migrate(self._db, version)
            self.history = History(self._db, path)
            self._compaction = Compaction(self._db)
        except sqlite3.Error as error:
            raise unusable(path, error) from None

    def _create(self) -> None:
        self._db.executescript(f"BEGIN;{migrations.SCHEMA}COMMIT;")
        self._db.execute("INSERT INTO meta VALUES ('version', ?)", (str(VERSION),))

    def _version(self) -> int:
        row = self._db.execute("SELECT value FROM meta WHERE key = 'version'").fetchone()
        if row is None or not row[0].isdigit():
            raise self._damaged("it does not say its version")
        version = int(row[0])
        if version > VERSION:
            raise StoreError(
                f"The journal {self._path} has version {version}, which a newer offcut writes; this one reads versions "
                f"up to {VERSION}.",
                next_step="Run the newer offcut, or choose another --state.",
            )
        return version

    # -- reading ------------------------------------------------------------------------------------------------------

    def load(self, settings: Settings) -> State:
        """Return the state that the journal leads to: the newest snapshot and every event after it.

        `settings` hold from now on; a new journal starts with them. Raises StoreError where it cannot be read.
        """
        try:
            if self._last_event() == 0:
                self._write_settings(0, settings)
            state = self.fold()
            if state.settings != settings:
                # A fold must repeat every decision under the settings that held then.
                self._write_settings(state.event_id, settings)
                state.settings = settings
            return state
        except sqlite3.Error as error:
            raise unusable(self._path, error) from None

    def fold(self, until: float = math.inf) -> State:
        """Return the state after the last event, or after event number `until`.

        An event that raises is marked in the journal, and passed over.
        """
        while True:
            state = self._base(until)
            changes = self._settings_after(state.event_id)
            self._check_curve_models({state.event_id: state.settings} | changes)
            for number, event, skipped in self._numbered(after=state.event_id):
                if number > until:
                    return state
                state.settings = changes.get(number - 1, state.settings)
                if skipped is not None:
                    skip(state, event, skipped)
                    continue
                try:
                    caused = step(state, event)
                except OffcutError:
                    raise  # of the environment: the file of a curve model is gone, for example
                except Exception as error:
                    self.mark_skipped(number, error)
                    self.remarks.append(f"event {number} ({event.kind}) could not be answered: {reason_of(error)}")
                    break  # the state is half changed, so the fold starts again without the event
                self.history.carry_out(caused)
            else:
                state.settings = changes.get(state.event_id, state.settings)
                return state

    def _check_curve_models(self, settings: dict[int, Settings]) -> None:
        """Raise InputError if a curve model is gone under which events were answered: the fold would differ."""
        last = self._last_event()
        for name in {held.profiler for after, held in settings.items() if after < last}:
            try:
                load_curve_model(name)
            except InputError as error:
                raise InputError(
                    f"The journal {self._path} was written with a profiler that cannot be used any more: {error.what}",
                    next_step="Put it back and start again. It is needed until a controller has ended in good order.",
                ) from None

    def _base(self, until: float = math.inf) -> State:
        """Return the newest snapshot that can be read, not after event `until`; else the state before the first event.

        Raises:
            StoreError: No snapshot can be read, and the first events are gone.
        """
        unread: StoreError | None = None
        rows = self._db.execute("SELECT * FROM snapshots WHERE event_id <= ? ORDER BY event_id DESC", (until,))
        for number, data, check in rows:
            try:
                return self._read(STATE, data, f"the snapshot after event {number}", check == checksum(number, data))
            except StoreError as error:
                unread = unread or error
                self.remarks.append(f"{error.what} The events lead to the same state: all of them were read again.")
        if unread is not None and not self._has_first_event():
            raise unread
        return State(settings=self._settings_after(0).get(0) or Settings())

    def _has_first_event(self) -> bool:
        return self._db.execute("SELECT 1 FROM events WHERE id = 1").fetchone() is not None

    def _last_event(self) -> int:
        """Return the number of the newest event or snapshot; 0 if there is none."""
        row = self._db.execute("SELECT max(id) FROM events").fetchone()
        newest = self._db.execute("SELECT max(event_id) FROM snapshots").fetchone()
        return max(row[0] or 0, newest[0] or 0)

    def _settings_after(self, number: int) -> dict[int, Settings]:
        """Return the settings that held from event `number` on, or later, keyed by the number of the event before."""
        rows = self._db.execute("SELECT after_event, data FROM settings WHERE after_event >= ?", (number,))
        return {after: self._read(SETTINGS, data, "the settings") for after, data in rows}

    def last_written(self) -> int:
        """Return the number of the last event that was written, as noted beside the journal; 0: not known.

        The journal may end with an earlier one, because SQLite leaves out what follows a damaged page of its log.
        """
        return self._last.read()

    def replay(self) -> Iterator[tuple[State, Event]]:
        """Yield the state and the event, for every event from the first on.

        It is always the same state object, which changes.

        If the first events are gone, it begins with the oldest snapshot.
        """
        if self._compaction.first:
            state = self._base(self._compaction.first)
        elif self._has_first_event():
            state = State(settings=self._settings_after(0).get(0) or Settings())
        else:
            state = self._base()
        changes = self._settings_after(state.event_id)
        for number, event, skipped in self._numbered(after=state.event_id):
            state.settings = changes.get(number - 1, state.settings)
            if skipped is None:
                # Only this version cannot answer it, and a snapshot follows: a replay may show half of its changes.
                with suppress(Exception):
                    step(state, event)
            else:
                skip(state, event, skipped)
            yield state, event

    def events(self, after: int = 0) -> Iterator[tuple[int, Event]]:
        """Yield (number, event) for every event after number `after`.

        Raises StoreError at one that is missing or damaged.
        """
        for number, event, _ in self._numbered(after):
            yield number, event

    def recent(self, kind: str, of_last: int) -> list[Event]:
        """Return the events of this kind among the last `of_last` events, oldest first."""
        try:
            rows = self._db.execute(
                "SELECT id, data FROM events WHERE id > ? AND kind = ? AND skipped IS NULL ORDER BY id",
                (self._last_event() - of_last, kind),
            ).fetchall()
        except sqlite3.Error as error:
            raise unusable(self._path, error) from None
        return [self._read(EVENT, data, f"event {number}") for number, data in rows]

    def _numbered(self, after: int) -> Iterator[tuple[int, Event, str | None]]:
        rows = self._db.execute("SELECT id, data, checksum, skipped FROM events WHERE id > ? ORDER BY id", (after,))
        for expected, (number, data, check, skipped) in enumerate(rows, after + 1):
            if number != expected:
                raise self._damaged(f"event {expected} is missing")
            yield number, self._read(EVENT, data, f"event {number}", check == checksum(number, data)), skipped

    def _read(self, kind: TypeAdapter[Item], data: str, what: str, intact: bool | None = None) -> Item:
        """Return the event. `intact`: what the checksum says, if there is one."""
        if intact is False:
            raise self._damaged(f"{what} is not what was written")
        try:
            return kind.validate_json(data)
        except (ValidationError, OffcutError, TypeError):
            if intact:
                raise StoreError(
                    f"The journal {self._path} was written by another version of offcut: this one cannot read {what}.",
                    next_step="Run the version that wrote it, or choose another --state.",
                ) from None
            raise self._damaged(f"{what} cannot be read") from None

    def _damaged(self, fault: str) -> StoreError:
        return StoreError(f"The journal {self._path} is damaged: {fault}.", next_step=WHAT_TO_DO)

    # -- writing ------------------------------------------------------------------------------------------------------

    def append(self, number: int, event: Event) -> None:
        """Write event `number`, the one after the last. Raises StoreError if the disk is full or read-only."""
        data = encode(event)
        try:
            self._db.execute(
                "INSERT INTO events VALUES (?, ?, ?, ?, ?, NULL)",
                (number, event.time_s, event.kind, data, checksum(number, data)),
            )
            self._compaction.trim()
        except sqlite3.Error as error:
            self.figures.failures["append"] += 1
            raise unusable(self._path, error) from None
        self.figures.note_written(len(data))
        self._last.note(number)

    def mark_skipped(self, number: int, error: Exception) -> None:
        """Mark event `number` as one that cannot be answered: from now on every fold skips it."""
        try:
            self._db.execute("UPDATE events SET skipped = ? WHERE id = ?", (reason_of(error), number))
        except sqlite3.Error as failed:
            raise unusable(self._path, failed) from None

    def append_log(self, time_s: float, lines: Iterable[WriteLog]) -> None:
        """Store log lines. Storing a line twice is the same as once, because the key is its cause and index."""
        rows = [(line.cause, line.index, time_s, line.subject, line.text) for line in lines]
        try:
            self._db.executemany("INSERT OR REPLACE INTO story VALUES (?, ?, ?, ?, ?)", rows)
        except sqlite3.Error:
            self.figures.failures["story"] += 1

    def story(self, subject: str, last: int = 100) -> list[tuple[float, str]]:
        """Return (time_s, text) of what happened to a job or a node, oldest first."""
        try:
            rows = self._db.execute(
                "SELECT time_s, text FROM story WHERE subject = ? ORDER BY event_id DESC, place DESC LIMIT ?",
                (subject, last),
            ).fetchall()
        except sqlite3.Error as error:
            raise unusable(self._path, error) from None
        return [(time_s, text) for time_s, text in reversed(rows)]

    def snapshot(self, state: State) -> None:
        """Store the whole state. Delete older snapshots, and in the end the events that are more than may be kept."""
        data = encode(state)
        row = (state.event_id, data, checksum(state.event_id, data))
        try:
            self._db.execute("INSERT OR REPLACE INTO snapshots VALUES (?, ?, ?)", row)
            self._compaction.note_snapshot(state)
        except sqlite3.Error as error:
            self.figures.failures["snapshot"] += 1
            raise unusable(self._path, error) from None

    def _write_settings(self, after: int, settings: Settings) -> None:
        self._db.execute("INSERT OR REPLACE INTO settings VALUES (?, ?)", (after, encode(settings)))

    def sync(self) -> None:
        """Return when all that has been written would survive a crash of the whole machine."""
        if not self._in_wal:
            return
        try:
            if self._wal is None:
                self._wal = os.open(f"{self._path}-wal", os.O_RDONLY)
            began_s = clocks.steady_s()
            (self._fsync or os.fsync)(self._wal)
            self.figures.sync_seconds.observe(clocks.steady_s() - began_s)
        except OSError as error:
            self.figures.failures["sync"] += 1
            raise unusable(self._path, error) from None

    def size_bytes(self) -> int:
        """Return how large the database and its write-ahead log are."""
        size = 0
        for path in (self._path, Path(f"{self._path}-wal")):
            with suppress(OSError):
                size += path.stat().st_size
        return size

    def close(self) -> None:
        if self._wal is not None:
            os.close(self._wal)
            self._wal = None
        self._db.close()
        self._last.close()


def reason_of(error: Exception) -> str:
    """Return an unexpected exception in one line."""
    return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no message'}"
