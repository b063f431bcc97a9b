"""Reads what a job's workers print while they print it: every byte once, lines in the order of their writing."""

from __future__ import annotations

import errno
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

#: At most this much of a log is read in one look, so that logs take turns.
_BLOCK_BYTES = 1 << 20
#: A line that has not ended is held back for this long, so that no other log's line comes between its parts.
_LINE_S = 1.0
#: A log that is being cut is shorter than what was read of it for a moment; after this it counts as another log.
_CUT_S = 2.0
#: What `service.log_files` writes at the start of a log whose first part it has cut off.
_CUT = re.compile(rb"\[(\d+) bytes before this were cut: log_bytes\]\n")


@dataclass(slots=True)
class _Log:
    """How far one log has been read. `changed`: its size and time of modification at the last look."""

    position: int = 0
    cut_bytes: int = 0
    changed: tuple[int, int] = (-1, -1)
    pending: bytes = b""
    pending_since_s: float = 0.0
    short_since_s: float | None = None


class LogFollower:
    """Follows the logs in a directory, also those that are created later and those that are cut or deleted meanwhile.

    Args:
        directory: where the logs are; it need not exist yet.
        worker: only logs whose names start with this; None: all.
        read: the position up to which each log has been read already.
        now_s: returns the time in seconds.
    """

    def __init__(
        self,
        directory: Path,
        worker: str | None = None,
        read: dict[Path, int] | None = None,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._directory = directory
        self._worker = worker or ""
        self._now_s = now_s
        self._logs = {path: _Log(position, _cut_bytes(path)) for path, position in (read or {}).items()}

    def new_lines(self, *, at_end: bool = False) -> Iterator[tuple[Path, bytes]]:
        """Yield what was written since the last call, the log that was written to last at the end.

        Args:
            at_end: nothing more will be written: lines that have not ended are not held back.
        """
        for _, path in sorted(self._changed()):
            log = self._logs.setdefault(path, _Log())
            with suppress(FileNotFoundError):
                try:
                    data = self._read(path, log)
                except OSError as error:
                    if error.errno != errno.ESTALE:
                        raise
                    continue  # deleted on another machine
                if not log.pending:
                    log.pending_since_s = self._now_s()
                ended = (log.pending + data).rfind(b"\n") + 1
                whole, log.pending = (log.pending + data)[:ended], (log.pending + data)[ended:]
                if whole:
                    log.pending_since_s = self._now_s()
                    yield path, whole
        for path, log in self._logs.items():
            if log.pending and (at_end or self._now_s() - log.pending_since_s >= _LINE_S):
                whole, log.pending = log.pending, b""
                yield path, whole

    def _changed(self) -> list[tuple[int, Path]]:
        """Return the logs that may have something new: when each was written to last (ns), and its path."""
        found = []
        with suppress(FileNotFoundError), os.scandir(self._directory) as entries:
            for entry in entries:
                if not entry.name.endswith(".log") or not entry.name.startswith(self._worker):
                    continue
                with suppress(FileNotFoundError):
                    told, path = entry.stat(), Path(entry.path)
                    log = self._logs.get(path)
                    if log is None or log.position != told.st_size or log.changed != (told.st_size, told.st_mtime_ns):
                        found.append((told.st_mtime_ns, path))
                        if log is not None:
                            log.changed = told.st_size, told.st_mtime_ns
        return found

    def _read(self, path: Path, log: _Log) -> bytes:
        with path.open("rb") as file:
            # Of the open file: what a network file system said of it before may be seconds old.
            size = os.fstat(file.fileno()).st_size
            cut = _CUT.match(file.read(64))
            if cut is not None and int(cut[1]) != log.cut_bytes:
                # What was read up to `position` is now at `position` less what was cut, behind the line that says so.
                log.cut_bytes = int(cut[1])
                kept = log.position - log.cut_bytes
                log.position = kept + cut.end() if kept >= 0 else 0
            if log.position > size:
                now_s = self._now_s()
                log.short_since_s = log.short_since_s or now_s
                if now_s - log.short_since_s < _CUT_S:
                    return b""
                log.position = 0
            log.short_since_s = None
            file.seek(log.position)
            data = file.read(_BLOCK_BYTES)
            log.position += len(data)
            return data


def _cut_bytes(path: Path) -> int:
    with suppress(OSError), path.open("rb") as file:
        cut = _CUT.match(file.read(64))
        return 0 if cut is None else int(cut[1])
    return 0
