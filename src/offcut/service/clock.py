"""The clock of events: the wall clock's time when the controller began, plus the steady time since, in seconds."""

from __future__ import annotations

from offcut.process import clocks


class Clock:
    """A clock that never goes backwards and does not follow the wall clock when that is set.

    It begins at the wall clock's time, or at `not_before_s` where that is later: the journal's last event may be of a
    time when the wall clock was ahead.
    """

    def __init__(self, not_before_s: float = 0.0) -> None:
        wall_s = clocks.wall_s()
        #: How far it began ahead of the wall clock.
        self.ahead_s = max(0.0, not_before_s - wall_s)
        self._offset_s = wall_s + self.ahead_s - clocks.steady_s()

    def now(self) -> float:
        return clocks.steady_s() + self._offset_s
