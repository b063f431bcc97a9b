"""Makes an agent exit in time, whatever its event loop does.

An orderly exit needs the event loop, which may be stuck in a call that hangs. So one thread handles signals, and
another counts down from the moment at which the agent was told to leave; then it kills every worker and ends the
process, whatever the loop does.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterable
from typing import Protocol

from offcut.process.process_group import kill_group

#: The signals that make an agent leave.
SIGNALS = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP})


class Watchdog(Protocol):
    """What ends the agent in time; see `ExitWatchdog`."""

    def listen(self) -> None: ...

    def begin(self) -> None: ...


class ExitWatchdog:
    """`told` is called, in a thread, when a signal comes; `groups` names the process groups to kill."""

    def __init__(self, limit_s: float, told: Callable[[], None], groups: Callable[[], Iterable[int]]) -> None:
        self._limit_s = limit_s
        self._told = told
        self._groups = groups
        self._leaving = threading.Event()

    def listen(self) -> None:
        """Take the signals. Call it in the main thread, before any other thread is started."""
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        threading.Thread(target=self._wait_for_signals, daemon=True, name="signals").start()
        threading.Thread(target=self._count_down, daemon=True, name="exit watchdog").start()

    def begin(self) -> None:
        """Start the countdown; further calls do nothing."""
        self._leaving.set()

    def _wait_for_signals(self) -> None:
        while True:
            signal.sigwait(SIGNALS)
            self._leaving.set()
            self._told()

    def _count_down(self) -> None:
        self._leaving.wait()
        time.sleep(self._limit_s)
        for leader in self._groups():
            kill_group(leader)
        # Exit code 0: it did as it was told, and a batch system that counts failures should not count this.
        os._exit(0)


def unblock() -> None:
    """Unblock the signals in a process that the agent starts."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
