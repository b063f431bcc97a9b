"""A slow node told from a slow job.

All members of a generation take a step in the same time, for they wait for each other; what differs is how long each
works before it waits. Every node says that now and then. A node that takes far longer than the middle of the others,
several times in a row, slows the whole job down; until it is as quick as they are as many times in a row.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping
from statistics import median

#: A node is slow that works so many times as long as the others, in each of its newest reports.
_SLOW = 1.3
_REPORTS = 3


class Stragglers:
    """Finds slow nodes of one generation. `slow` maps each slow node to the factor by which it is slower."""

    __slots__ = ("_own_s", "slow")

    def __init__(self) -> None:
        self._own_s: dict[str, deque[float]] = {}
        self.slow: dict[str, float] = {}

    def add_report(self, node: str, own_step_s: float) -> str | None:
        """`node` worked `own_step_s` for each step of late. The name of a node that turns out to be slow."""
        self._own_s.setdefault(node, deque(maxlen=_REPORTS)).append(own_step_s)
        full = {name: seen for name, seen in self._own_s.items() if len(seen) == _REPORTS}
        if len(full) < 2:
            return None
        for name in [name for name in self.slow if name in full]:
            if max(full[name]) < _SLOW * _others(full, name):
                del self.slow[name]
        name = max(full, key=lambda name: min(full[name]))
        least, others = min(full[name]), _others(full, name)
        if others <= 0 or least < _SLOW * others:
            return None
        new = name not in self.slow
        self.slow[name] = least / others
        return name if new else None


def _others(seen: Mapping[str, Collection[float]], name: str) -> float:
    """How long the others work: the middle of them."""
    return median([median(reports) for other, reports in seen.items() if other != name])
