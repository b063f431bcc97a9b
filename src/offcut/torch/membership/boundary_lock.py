"""The lock that keeps a state from being saved while it is not that of a boundary."""

from __future__ import annotations

import threading


class BoundaryLock:
    """Held by the training thread from applying a step until the next boundary is passed."""

    def __init__(self) -> None:
        #: While it is free, the state is a boundary's.
        self.lock = threading.Lock()
        #: Whether it is held by the training thread.
        self._held = False

    def hold(self) -> None:
        """Let no other thread save the state until the next boundary. Later calls do nothing."""
        if not self._held:
            self.lock.acquire()
            self._held = True

    def free(self) -> None:
        """Let other threads save the state, if the training thread has kept them from it."""
        # The thread that leaves in time may hold the lock while it saves.
        if self._held:
            self._held = False
            self.lock.release()
