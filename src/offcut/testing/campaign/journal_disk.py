"""The disk under the controller's journal: it may be full, and a loss of power loses or tears what was not synced."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from offcut.store.journal import Journal

#: What a disk writes whole.
_SECTOR_BYTES = 512
#: The header of SQLite's write-ahead log; it changes when the log begins again, after a checkpoint that was synced.
_HEADER_BYTES = 32


class JournalDisk:
    """Opens journals, and knows what a loss of power leaves of the last one.

    Args:
        is_full: whether nothing more can be written at present.
        random: decides which writes have reached the disk.
    """

    def __init__(self, is_full: Callable[[], bool], random: Random) -> None:
        self._is_full = is_full
        self._random = random
        self._path = Path()
        self._synced = b""

    def open(self, path: Path) -> Journal:
        """Open the journal at `path`. Raises StoreError."""
        self._path = path
        self._synced = _read(self._log)
        return Journal(path, connect=self._connect, fsync=self._fsync)

    @property
    def _log(self) -> Path:
        return self._path.with_name(f"{self._path.name}-wal")

    def _connect(self, path: Path) -> sqlite3.Connection:
        is_full = self._is_full

        class Connection(sqlite3.Connection):
            """Raises what SQLite raises where a full disk takes no more."""

            def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
                _check_room(sql, is_full)
                return super().execute(sql, *values)

            def executemany(self, sql: str, *values: Any) -> sqlite3.Cursor:
                _check_room(sql, is_full)
                return super().executemany(sql, *values)

        return sqlite3.connect(path, isolation_level=None, factory=Connection)

    def _fsync(self, handle: int) -> None:
        self._synced = os.pread(handle, os.fstat(handle).st_size, 0)

    def lose_power(self, journal: Journal) -> None:
        """Leave the files as they are when the power fails at this moment. The journal is closed."""
        files = {path: path.read_bytes() for path in sorted(self._path.parent.glob(f"{self._path.name}*"))}
        log = files.get(self._log, b"")
        journal.close()
        for path in self._path.parent.glob(f"{self._path.name}*"):
            path.unlink()
        files.pop(self._path.with_name(f"{self._path.name}-shm"), None)
        if log:
            files[self._log] = self._torn(log)
        for path, data in files.items():
            path.write_bytes(data)

    def _torn(self, log: bytes) -> bytes:
        """Return the log with some of the sectors that were written since it was last synced, and without others."""
        synced = self._synced if self._synced[:_HEADER_BYTES] == log[:_HEADER_BYTES] else b""
        reach = self._random.choice((0.0, 0.5, 0.9, 1.0))
        left = bytearray()
        for first in range(0, len(log), _SECTOR_BYTES):
            new, old = log[first : first + _SECTOR_BYTES], synced[first : first + _SECTOR_BYTES]
            left += new if new == old or self._random.random() < reach else old.ljust(len(new), b"\0")
        return bytes(left)


def _check_room(sql: str, is_full: Callable[[], bool]) -> None:
    if is_full() and sql.startswith(("INSERT", "UPDATE", "DELETE")):
        error = sqlite3.OperationalError("database or disk is full")
        error.sqlite_errorcode = sqlite3.SQLITE_FULL
        raise error


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""
