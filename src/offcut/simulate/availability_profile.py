"""The number of free nodes over future time, with which conservative backfilling plans its reservations."""

from __future__ import annotations

from bisect import bisect_left, bisect_right


class AvailabilityProfile:
    """A step function of time: `free[i]` nodes are free from `times[i]` until `times[i + 1]`, the last without end."""

    def __init__(self, nodes: int, now_s: float) -> None:
        self.times = [now_s]
        self.free = [nodes]

    def forget_before(self, now_s: float) -> None:
        """Remove the steps before a time.

        Args:
            now_s: the time, in seconds.
        """
        i = bisect_right(self.times, now_s) - 1
        if i > 0:
            del self.times[:i], self.free[:i]
        self.times[0] = max(self.times[0], now_s)

    def change(self, start_s: float, end_s: float, by: int) -> None:
        """Add nodes to an interval, or remove them from it.

        Args:
            start_s: the interval's start, in seconds.
            end_s: the interval's end (not in it), in seconds.
            by: the number of nodes that are free in addition; negative: fewer are free.
        """
        first, last = self._split(start_s), self._split(end_s)
        for i in range(first, last):
            self.free[i] += by
        # Steps of height 0 are removed, so that the function has only as many steps as there are reservations.
        for i in (last, first):
            if i > 0 and self.free[i] == self.free[i - 1]:
                del self.times[i], self.free[i]

    def _split(self, time_s: float) -> int:
        """Return the index of the step that begins at `time_s`, which is made if there is none."""
        i = bisect_left(self.times, time_s)
        if i == len(self.times) or self.times[i] != time_s:
            self.times.insert(i, time_s)
            self.free.insert(i, self.free[i - 1])
        return i

    def earliest(self, nodes: int, for_s: float) -> float:
        """Find the first time from which enough nodes stay free for long enough.

        Args:
            nodes: the number of nodes.
            for_s: the length of the interval, in seconds.

        Returns:
            Seconds, on the clock of the steps.
        """
        times, free = self.times, self.free
        start_s = times[0]
        for i, count in enumerate(free):
            if count < nodes:
                # Too few until the next step. The last step is the empty machine, which is large enough for any job.
                start_s = times[i + 1]
            elif i + 1 == len(times) or times[i + 1] >= start_s + for_s:
                break
        return start_s
