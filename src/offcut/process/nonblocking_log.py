"""A log that never delays its program: lines are written by a thread, and are lost if they cannot be written.

The log may be on a terminal that has closed, a full disk, or a file system that hangs.
"""

from __future__ import annotations

import os
import queue
import threading
import time
from contextlib import suppress

#: Lines that wait to be written; more are lost.
_MOST_WAITING = 10_000


class NonblockingLog:
    """Writes lines to a file descriptor; a logger for structlog. No method raises, and only `flush` waits."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._written = 0
        self._taken = 0

    def msg(self, message: str) -> None:
        if self._lines.qsize() >= _MOST_WAITING:
            return
        self._taken += 1
        self._lines.put(message)
        if self._thread is None:
            self._thread = threading.Thread(target=self._write_all, daemon=True, name="log")
            with suppress(RuntimeError):  # the system has no more threads
                self._thread.start()

    log = debug = info = warn = warning = msg
    fatal = failure = err = error = critical = exception = msg

    def flush(self, limit_s: float) -> None:
        """Wait until what was logged has been written, for `limit_s` at most."""
        give_up_s = time.monotonic() + limit_s
        while self._written < self._taken and time.monotonic() < give_up_s:
            time.sleep(0.001)

    def _write_all(self) -> None:
        while True:
            data = (self._lines.get() + "\n").encode(errors="replace")
            with suppress(OSError):
                while data:
                    data = data[os.write(self._descriptor, data) :]
            self._written += 1
