"""The free nodes of a machine, and their idle windows.

If a log or a simulation knows only the number of nodes of a job, the job gets the lowest-numbered free nodes. Free
nodes are stored as runs of neighbours that became free together, so that the cost of a step depends on runs, not on
nodes.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort

import numpy as np

from offcut.traces.windows import Ints, Windows, node_names

#: The nodes from `low` to `high - 1`.
Range = tuple[int, int]
#: A run of free nodes (low, high), the time since when, and the end expected then (NaN: none).
_Run = tuple[int, int, float, float]


class FreeNodes:
    """The free nodes of a machine of `nodes` nodes; at `now_s` all are free."""

    def __init__(self, nodes: int, now_s: float) -> None:
        self.nodes = nodes
        self.free = nodes
        self._runs: list[_Run] = [(0, nodes, now_s, math.nan)]
        self._windows: list[tuple[int, int, float, float, float]] = []

    def occupy(self, count: int, now_s: float) -> list[Range]:
        """Give the `count` lowest-numbered free nodes to a job; their windows end. Returns the nodes."""
        taken: list[Range] = []
        left = count
        used = 0
        for low, high, since_s, expected_s in self._runs:
            if left == 0:
                break
            cut = min(high, low + left)
            taken.append((low, cut))
            left -= cut - low
            self._close(low, cut, since_s, now_s, expected_s)
            if cut < high:
                self._runs[used] = (cut, high, since_s, expected_s)
                break
            used += 1
        del self._runs[:used]
        self.free -= count - left
        return taken

    def vacate(self, ranges: list[Range], now_s: float) -> None:
        """Free nodes again; their windows begin."""
        for low, high in ranges:
            insort(self._runs, (low, high, now_s, math.nan))
            self.free += high - low

    def set_expected_ends(self, plan: list[tuple[float, int]], now_s: float) -> None:
        """Set the expected ends of the windows that began at `now_s`.

        `plan` holds pairs (time, number of nodes that the queue leaves free from then on), in the order of time. The
        lowest-numbered nodes are used first, so a node is expected to be used as soon as the number left is at most
        the number of free nodes above it.
        """
        if not plan or not any(run[2] == now_s for run in self._runs):
            return
        # steps[i] = (rank below which a free node is used, at this time), ranks growing.
        steps: list[tuple[int, float]] = []
        for time_s, left in plan:
            used = self.free - left
            if used > (steps[-1][0] if steps else 0):
                steps.append((used, time_s))
        runs: list[_Run] = []
        rank = 0
        for low, high, since_s, expected_s in self._runs:
            at = low
            if since_s == now_s:
                step = bisect_left(steps, (rank + 1,))
                while step < len(steps) and at < high:
                    cut = min(high, low + steps[step][0] - rank)
                    runs.append((at, cut, since_s, steps[step][1]))
                    at = cut
                    step += 1
            if at < high:
                runs.append((at, high, since_s, math.nan if since_s == now_s else expected_s))
            rank += high - low
        self._runs = runs

    def windows(self, end_s: float) -> Windows:
        """Return all windows until `end_s`; windows of nodes that are still free are cut there. Call it last."""
        for low, high, since_s, expected_s in self._runs:
            self._close(low, high, since_s, end_s, expected_s)
        rows = np.array(self._windows, np.float64).reshape(-1, 5)
        first, count = rows[:, 0].astype(np.int64), (rows[:, 1] - rows[:, 0]).astype(np.int64)
        node = _expand(first, count)
        start, end, expected = (np.repeat(rows[:, i], count) for i in (2, 3, 4))
        return Windows.from_indices(node_names(self.nodes), node, start, end, expected)

    def _close(self, low: int, high: int, since_s: float, now_s: float, expected_s: float) -> None:
        if now_s > since_s:
            self._windows.append((low, high, since_s, now_s, expected_s))


def _expand(first: Ints, count: Ints) -> Ints:
    """Return first[0], first[0] + 1, ... (count[0] of them), first[1], ..."""
    before: Ints = np.cumsum(count) - count
    return np.arange(int(count.sum()), dtype=np.int64) + np.repeat(first - before, count)
