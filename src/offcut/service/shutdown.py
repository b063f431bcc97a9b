"""Signals that end the controller, and the guarantee that it does end."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Awaitable
from contextlib import suppress
from typing import Any

import structlog

_log = structlog.get_logger()

HURRIED = "Ended at once, as it was asked twice; a node that is still held is released by its agent."

#: Each step of an orderly end is given up after this.
STEP_LIMIT_S = 10.0
#: After the second signal, or when an orderly end takes this long in all, the process ends even if threads still run.
HURRY_LIMIT_S = 2.0
END_LIMIT_S = 120.0
#: What a step may take after the second signal: enough to tell the batch system.
_HURRIED_STEP_S = 0.2


class Endings:
    """Handles the signals: SIGTERM, SIGINT and SIGHUP ask for an orderly end; a second one for an end at once."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        #: The second signal has come: the end waits for nothing any more.
        self.hurried = asyncio.Event()
        self._guard: threading.Timer | None = None

    def listen(self) -> None:
        """Handle the signals from now on. A SIGHUP that is ignored (nohup) stays ignored."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
                loop.add_signal_handler(number, self._take)

    def _take(self) -> None:
        if self.asked.is_set() and not self.hurried.is_set():
            self.hurried.set()
            self.surely_within(HURRY_LIMIT_S)
        if not self.asked.is_set():
            _log.info("ending", next_step="A second signal ends it at once.")
        self.asked.set()

    def surely_within(self, limit_s: float) -> None:
        """End the process with exit code 1 after `limit_s` if it still runs, even if a thread of it hangs."""
        self.withdraw()
        self._guard = threading.Timer(limit_s, _end)
        self._guard.daemon = True
        self._guard.start()

    def withdraw(self) -> None:
        """Cancel the guard: the process has come to its end by itself."""
        if self._guard is not None:
            self._guard.cancel()

    async def step(self, what: Awaitable[Any], limit_s: float = STEP_LIMIT_S) -> Any:
        """Wait for one step of the end, `limit_s` at most, and hardly at all once hurried. Return None if given up."""
        task = asyncio.ensure_future(what)
        hurried = asyncio.ensure_future(self.hurried.wait())
        try:
            await asyncio.wait((task, hurried), timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
            if hurried.done() and not task.done():
                await asyncio.wait((task,), timeout=_HURRIED_STEP_S)
            return task.result() if task.done() else None
        finally:
            hurried.cancel()
            task.cancel()


def _end() -> None:
    with suppress(OSError):
        sys.stderr.write(f"offcut: {HURRIED}\n")
        sys.stderr.flush()
    os._exit(1)
