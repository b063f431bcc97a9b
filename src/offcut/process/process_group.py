"""Ends a process and everything in its process group."""

from __future__ import annotations

import os
import signal
from contextlib import suppress


def kill_group(leader: int) -> None:
    """Send SIGKILL to the process group that `leader` leads, and to `leader`; do nothing where they have ended."""
    for kill in (os.killpg, os.kill):
        with suppress(ProcessLookupError, PermissionError):
            kill(leader, signal.SIGKILL)
