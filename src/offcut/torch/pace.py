"""How long a rank itself works, apart from what it waits for others: two readings of the clock per reduce."""

from __future__ import annotations

import time


class Pace:
    """Entered for every reduce. `own_s` grows by the time between two reduces.

    In a job whose members wait for one of them, that one's grows fastest.
    """

    __slots__ = ("_since_s", "own_s")

    def __init__(self) -> None:
        self.own_s = 0.0
        self._since_s: float | None = None

    def __enter__(self) -> None:
        if self._since_s is not None:
            self.own_s += time.monotonic() - self._since_s

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if kind is None:
            self._since_s = time.monotonic()
        else:
            self.interrupt()

    def interrupt(self) -> None:
        """What comes until the next reduce ends (a new epoch, say) is no work of a step."""
        self._since_s = None
