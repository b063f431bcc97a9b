"""Measures how long a rank itself works, without its waits for others, and predicts its next boundary.

It costs two readings of the clock per reduce, and one per boundary.
"""

from __future__ import annotations

import time
from collections import deque

#: The next boundary is expected after the shortest of this many steps.
_STEPS = 3


class StepTiming:
    """Entered for every reduce. `own_s` grows by the time between two reduces.

    In a job whose members wait for one of them, that one's grows fastest.
    """

    __slots__ = ("_boundary_s", "_since_s", "_steps_s", "own_s")

    def __init__(self) -> None:
        self.own_s = 0.0
        self._since_s: float | None = None
        self._boundary_s: float | None = None
        self._steps_s: deque[float] = deque(maxlen=_STEPS)

    def __enter__(self) -> None:
        if self._since_s is not None:
            self.own_s += time.monotonic() - self._since_s

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if kind is None:
            self._since_s = time.monotonic()
        else:
            self.interrupt()

    def boundary(self) -> None:
        """Note that a boundary is passed."""
        now_s = time.monotonic()
        if self._boundary_s is not None:
            self._steps_s.append(now_s - self._boundary_s)
        self._boundary_s = now_s

    def interrupt(self) -> None:
        """Note that the time until the next reduce or boundary is not part of a step's work (a new generation, say).

        Until a step of the new generation is measured, the next boundary is predicted from those of the last one.
        """
        self._since_s = None
        self._boundary_s = None

    @property
    def next_boundary_s(self) -> float:
        """When the next boundary comes at the earliest, on the monotonic clock, if steps take as long as the last ones.

        0 if no step was measured yet.

        Any thread may call this.
        """
        steps_s, boundary_s = list(self._steps_s), self._boundary_s
        return boundary_s + min(steps_s) if steps_s and boundary_s is not None else 0.0
