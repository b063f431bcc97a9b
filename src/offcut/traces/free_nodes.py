"""Which nodes of a machine are free, since when, and until when the queue expects it; it keeps their windows.

The placement rule, wherever a log or a simulation knows only how many nodes a job has: the lowest-numbered free ones.
Free nodes are kept as runs of neighbours that became free together, so that a step costs by runs and not by nodes.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort

import numpy as np

from offcut.traces.windows import Ints, Windows, node_names

#: Nodes `low` up to and without `high`.
Range = tuple[int, int]
#: Nodes `low`..`high` free since a time, with the end that was expected then (NaN: none).
_Run = tuple[int, int, float, float]


class FreeNodes:
    """The free nodes of a machine of `nodes` nodes, all free at `now_s`."""

    def __init__(self, nodes: int, now_s: float) -> None:
        self.nodes = nodes
        self.free = nodes
        self._runs: list[_Run] = [(0, nodes, now_s, math.nan)]
        self._windows: list[tuple[int, int, float, float, float]] = []

    def occupy(self, count: int, now_s: float) -> list[Range]:
        """Take the `count` lowest-numbered free nodes; their windows end."""
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
        """Nodes become free again; their windows begin."""
        for low, high in ranges:
            insort(self._runs, (low, high, now_s, math.nan))
            self.free += high - low

    def set_expected_ends(self, plan: list[tuple[float, int]], now_s: float) -> None:
        """Note for the windows that began at `now_s` when the queue means to use their nodes.

        `plan` holds pairs (time, how many of the machine's nodes the queue leaves free from then on), in the order of
        time; lowest-numbered nodes go first, so a node is expected to be used once fewer are left than have a higher
        number.
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
        """All windows until `end_s`, when those of the nodes that are still free are cut. Call it last."""
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
    """first[0], first[0] + 1, ... (count[0] of them), first[1], ..."""
    before: Ints = np.cumsum(count) - count
    return np.arange(int(count.sum()), dtype=np.int64) + np.repeat(first - before, count)
