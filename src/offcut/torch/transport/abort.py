"""Ends the operations of a generation that is over, or this process if they cannot be ended.

An abort can hang where a device or a driver is stuck, and the device is of no use to this process then. The job
survives the death of any member, so the process ends, and a new one takes its place.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

from offcut.torch.transport.protocol import Transport

#: How long an abort may take.
LIMIT_S = 10.0
#: How much longer the abort of each further rank may take. What all members wait for may end when the first of them
#: ends: then the others keep the state.
_LATER_S = 2.0
#: The exit code of a process that could not abort.
EXIT_CODE = 75


def abort_or_exit(transport: Transport, rank: int, leave: Callable[[int], None] = os._exit) -> None:
    """Abort a transport; end this process if that takes too long.

    Args:
        transport: what to abort.
        rank: this member's number.
        leave: ends the process with an exit code.
    """
    thread = threading.Thread(target=transport.abort, name="offcut-abort", daemon=True)
    thread.start()
    thread.join(LIMIT_S + rank * _LATER_S)
    if thread.is_alive():
        leave(EXIT_CODE)
