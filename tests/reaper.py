"""Ends all processes that a test process has started once that has ended: `python -IS reaper.py PID MARK`.

Every pytest process (the main one, and each of xdist's workers) has a mark in its environment that begins with the mark
of the process that started it: `MAIN/WORKER`. Whatever tests start inherits it, also what makes itself a daemon. Beside
each pytest process waits a reaper, in a session of its own and without a mark, and in the end kills all that has one.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from contextlib import suppress

ENV_MARK = "OFFCUT_TEST_PROCESS"
#: What is killed needs a moment to die, and what was not yet seen may have started another process meanwhile.
_LOOKS, _LOOK_S = 500, 0.02


def marked(mark: str) -> list[int]:
    """Return the processes that were started, directly or not, by the process with this mark."""
    begins = f"{ENV_MARK}={mark}/".encode()
    return [int(entry) for entry in os.listdir("/proc") if entry.isdigit() and _has(int(entry), begins)]


def _has(pid: int, begins: bytes) -> bool:
    try:
        with open(f"/proc/{pid}/environ", "rb") as environment:
            return any((item + b"/").startswith(begins) for item in environment.read().split(b"\0"))
    except OSError:
        return False  # gone, or another user's


def kill_marked(mark: str) -> None:
    """Kill all of them, stopped ones too, and those that they start meanwhile."""
    begins = f"{ENV_MARK}={mark}/".encode()
    managers: dict[int, str] = {}
    for _ in range(_LOOKS):
        found = marked(mark)
        managers |= _step_managers(found)
        managers = {pid: place for pid, place in managers.items() if _manages_step(pid, place)}
        if not found and not managers:
            return
        for pid in (*found, *managers):
            with suppress(OSError):
                # Opened before it is looked at again: its number may be another process's by now.
                handle = os.pidfd_open(pid)
                if _has(pid, begins) or _manages_step(pid, managers.get(pid, "")):
                    signal.pidfd_send_signal(handle, signal.SIGKILL)
                os.close(handle)
        time.sleep(_LOOK_S)


def _step_managers(found: list[int]) -> dict[int, str]:
    """Return the working directories, by pid, of step managers of Slurms that one of the processes `found` belongs to.

    They write their titles over their environments. They work where their slurmd does, and start the jobs' processes.
    """
    places = {_place(pid) for pid in found} - {""}
    parents = {_parent(pid) for pid in found}
    by_pid = {int(entry): _place(int(entry)) for entry in os.listdir("/proc") if entry.isdigit()}
    return {
        pid: place for pid, place in by_pid.items() if (place in places or pid in parents) and _manages_step(pid, place)
    }


def _manages_step(pid: int, place: str) -> bool:
    """Return whether the process is a step manager that works in the directory `place`."""
    try:
        with open(f"/proc/{pid}/comm", "rb") as name:
            return bool(place) and name.read().strip() == b"slurmstepd" and _place(pid) == place
    except OSError:
        return False


def _place(pid: int) -> str:
    """Return the process's working directory; empty if it has ended."""
    try:
        return os.readlink(f"/proc/{pid}/cwd")
    except OSError:
        return ""


def _parent(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            return int(stat.read().rpartition(b")")[2].split()[1])
    except OSError:
        return 0


def main() -> None:
    parent, mark = int(sys.argv[1]), sys.argv[2]
    with suppress(ProcessLookupError):
        handle = os.pidfd_open(parent)
        if os.getppid() == parent:
            select.select([handle], [], [])
    kill_marked(mark)


if __name__ == "__main__":
    main()
