"""Workers that say nothing any more: busy, or frozen?

Every worker's heartbeat comes from a thread of its own, five times a second. A silent one may be stopped for good (a
signal, a suspended job), or its script may just be in a long call that keeps the interpreter's lock. The kernel tells
the two apart, so a stopped process is given up sooner than a silent one.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class HeartbeatTimeouts:
    """After how much silence a worker counts as frozen: if the kernel says that it is stopped, and in any case."""

    stopped_s: float = 2.0
    any_s: float = 5.0

    def frozen(self, silent_s: float, pid: int) -> bool:
        """Whether a worker that has been silent for `silent_s` is to be given up."""
        return silent_s > self.any_s or (silent_s > self.stopped_s and is_stopped(pid))


def is_stopped(pid: int) -> bool:
    """Whether a signal stopped the process (proc(5), state `T`; a debugger's stop is `t`). False if it is gone."""
    try:
        # The name stands in brackets and may hold anything.
        return Path("/proc", str(pid), "stat").read_bytes().rpartition(b") ")[2].startswith(b"T")
    except OSError:
        return False
