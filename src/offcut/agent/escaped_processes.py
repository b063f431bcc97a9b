"""Ends processes that escaped their process group, found by an environment variable that they inherited.

Ending a process group ends what a script normally starts. A daemon in a session of its own (experiment trackers start
some) is in another group. Unless it was given another environment, it still has the variable of its job's workers.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

#: The process table is read this often at most: a process may start another while it is read.
_PASSES = 5


def kill_marked(name: str, value: str) -> int:
    """Kill every process of this account in whose environment `name` is `value`; return how many there were."""
    mark, ended = f"{name}={value}".encode(), 0
    for _ in range(_PASSES):
        found = sum([_kill_if_marked(int(entry), mark) for entry in os.listdir("/proc") if entry.isdigit()])
        if not found:
            break
        ended += found
    return ended


def _kill_if_marked(pid: int, mark: bytes) -> bool:
    place = Path("/proc", str(pid))
    handle = -1
    try:
        if place.stat().st_uid != os.geteuid():
            return False
        # Opened before it is read: its id may belong to another process by the time it is signalled.
        handle = os.pidfd_open(pid)
        if mark not in (place / "environ").read_bytes().split(b"\0"):
            return False
        signal.pidfd_send_signal(handle, signal.SIGKILL)
        return True
    except OSError:
        return False
    finally:
        if handle >= 0:
            with suppress(OSError):
                os.close(handle)
