"""Decides when a worker that sends no heartbeats counts as frozen.

Every worker's heartbeat comes from a thread of its own, five times a second. A silent one may be stopped for good (a
signal, a suspended job), or its script may just be in a long call that keeps the interpreter's lock. The kernel tells
the two apart, so a stopped process is killed sooner than a silent one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


def is_stopped(pid: int) -> bool:
    """Return whether a signal stopped the process; False if it has ended.

    It is state `T` in proc(5); a debugger's stop is `t`.
    """
    try:
        # The process's name is in brackets and may contain any character.
        return Path("/proc", str(pid), "stat").read_bytes().rpartition(b") ")[2].startswith(b"T")
    except OSError:
        return False


@dataclass(frozen=True, slots=True)
class HeartbeatTimeouts:
    """Seconds without a heartbeat after which a worker counts as frozen."""

    #: If the kernel says that its process is stopped; otherwise `any_s` applies.
    stopped_s: float = 2.0
    any_s: float = 5.0
    #: Whether the kernel says that the process with this number is stopped.
    is_stopped: Callable[[int], bool] = is_stopped

    def frozen(self, silent_s: float, pid: int) -> bool:
        """Return whether a worker that has been silent for `silent_s` counts as frozen."""
        return silent_s > self.any_s or (silent_s > self.stopped_s and self.is_stopped(pid))
