"""Tells a slow node from a slow job.

All members of a generation take a step in the same time, because they wait for each other. They differ in how long each
works before it waits, which every node reports regularly. A node that takes far longer than the median of the others,
several times in a row, slows the whole job down, until it is as fast as they are as many times in a row.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Collection

#: A node is slow if it works this many times as long as the others, in each of its newest reports.
_SLOW = 1.3
_REPORTS = 3


def _middle(reports: Collection[float]) -> float:
    """Return the median of `_REPORTS` numbers."""
    return sorted(reports)[_REPORTS // 2]


class Stragglers:
    """Finds slow nodes of one generation. `slow` maps each slow node to the factor by which it is slower."""

    __slots__ = ("_least_s", "_medians_s", "_own_s", "slow")

    def __init__(self) -> None:
        self._own_s: dict[str, deque[float]] = {}
        #: Sorted reports of the nodes that have enough: the least of each (with its name), and the median of each.
        #: One node's report changes one entry, so that it costs no pass over a thousand nodes.
        self._least_s: list[tuple[float, str]] = []
        self._medians_s: list[float] = []
        self.slow: dict[str, float] = {}

    def add_report(self, node: str, own_step_s: float) -> str | None:
        """Add a node's report of how long it lately worked on a step.

        Args:
            node: The node's name.
            own_step_s: Seconds per step, without waiting for other members.

        Returns:
            A node that turns out to be slow, if any; each is returned once.
        """
        reports = self._own_s.setdefault(node, deque(maxlen=_REPORTS))
        if len(reports) == _REPORTS:
            del self._least_s[bisect_left(self._least_s, (min(reports), node))]
            del self._medians_s[bisect_left(self._medians_s, _middle(reports))]
        reports.append(own_step_s)
        if len(reports) == _REPORTS:
            insort(self._least_s, (min(reports), node))
            insort(self._medians_s, _middle(reports))
        if len(self._medians_s) < 2:
            return None
        for name in list(self.slow):
            if max(self._own_s[name]) < _SLOW * self._others_s(name):
                del self.slow[name]
        least_s, name = self._least_s[-1]
        others_s = self._others_s(name)
        if others_s <= 0 or least_s < _SLOW * others_s:
            return None
        new = name not in self.slow
        self.slow[name] = least_s / others_s
        return name if new else None

    def _others_s(self, name: str) -> float:
        """Return how long the other nodes work on a step: the median of their medians, in seconds."""
        own = bisect_left(self._medians_s, _middle(self._own_s[name]))
        count = len(self._medians_s) - 1

        def nth(i: int) -> float:
            return self._medians_s[i if i < own else i + 1]

        return (nth((count - 1) // 2) + nth(count // 2)) / 2
