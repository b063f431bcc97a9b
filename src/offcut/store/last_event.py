"""The number of the last event, in a file of its own beside the journal.

Where a page of SQLite's write-ahead log is damaged, SQLite takes what comes before it for all that there is: the last
events are gone, and nothing in the journal says so.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

#: Digits of the number, so that each one takes the place of the one before.
_DIGITS = 20


class LastEvent:
    """Beside the journal `journal`. It is written after the event, and not synced, as the journal is not.

    So after a crash of the whole machine it may name an event that is lost, or one that came earlier than the last.
    """

    def __init__(self, journal: Path) -> None:
        self._journal = journal
        self._path = journal.with_name(f"{journal.name}-last")
        self._file: int | None = None

    def read(self) -> int:
        """Return the number that was noted last; 0 if none was, or if it cannot be read."""
        with suppress(OSError, ValueError):
            return int(self._path.read_text())
        return 0

    def note(self, number: int) -> None:
        """Note that event `number` has been written. A disk that fails is told by the journal."""
        with suppress(OSError):
            if self._file is None:
                self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT, 0o600)
            os.pwrite(self._file, b"%0*d\n" % (_DIGITS, number), 0)

    def close(self) -> None:
        """End noting. The number goes where the journal was closed in good order: then it has no log any more."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
            if not self._journal.with_name(f"{self._journal.name}-wal").exists():
                self.forget()

    def forget(self) -> None:
        """Remove the number: that events are missing has been said."""
        with suppress(OSError):
            self._path.unlink()


def missing_tail(ends_with: int, written: int) -> str:
    """Return the sentence about a journal that ends with event `ends_with` although event `written` was written."""
    lost = f"event {written}" if written == ends_with + 1 else f"events {ends_with + 1} to {written}"
    return (
        f"It ends with event {ends_with}: {lost} had been written, and cannot be read any more (a crash of the whole "
        "machine, a damaged file, or an older copy)."
    )
