"""How many nodes are planned to be free, over the time to come: the plan of conservative backfilling."""

from __future__ import annotations

from bisect import bisect_left, bisect_right


class AvailabilityProfile:
    """A step function of time: `free[i]` nodes are free from `times[i]` until `times[i + 1]`, the last for ever."""

    def __init__(self, nodes: int, now_s: float) -> None:
        self.times = [now_s]
        self.free = [nodes]

    def forget_before(self, now_s: float) -> None:
        """Drop the past."""
        i = bisect_right(self.times, now_s) - 1
        if i > 0:
            del self.times[:i], self.free[:i]
        self.times[0] = max(self.times[0], now_s)

    def change(self, start_s: float, end_s: float, by: int) -> None:
        """`by` more nodes are free in `[start_s, end_s)`."""
        first, last = self._split(start_s), self._split(end_s)
        for i in range(first, last):
            self.free[i] += by
        # Steps of no height are dropped, so that the function stays as short as its plan.
        for i in (last, first):
            if i > 0 and self.free[i] == self.free[i - 1]:
                del self.times[i], self.free[i]

    def _split(self, time_s: float) -> int:
        """The index of the step that begins at `time_s`, made where there is none."""
        i = bisect_left(self.times, time_s)
        if i == len(self.times) or self.times[i] != time_s:
            self.times.insert(i, time_s)
            self.free.insert(i, self.free[i - 1])
        return i

    def earliest(self, nodes: int, for_s: float) -> float:
        """The first time from which `nodes` nodes are free for `for_s` seconds."""
        times, free = self.times, self.free
        start_s = times[0]
        for i, count in enumerate(free):
            if count < nodes:
                # Too few until the next step; the last step is the empty machine, wide enough for any job.
                start_s = times[i + 1]
            elif i + 1 == len(times) or times[i + 1] >= start_s + for_s:
                break
        return start_s
