"""A process that ends with the process that started it."""

from __future__ import annotations

import ctypes
import os
import signal

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


def die_with_parent(parent: int, signal_number: int = signal.SIGKILL) -> None:
    """Ask the kernel to signal this process when its parent ends; end now if the parent has ended already.

    Args:
        parent: The process number of the parent, as the parent itself knows it. `os.getppid()` called here would name
            init where the parent is dead already.
        signal_number: The signal that the kernel sends.
    """
    _libc.prctl(_PR_SET_PDEATHSIG, signal_number)
    if os.getppid() != parent:
        os._exit(3)
