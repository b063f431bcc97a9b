"""How long the queue waits for nodes that it wants: from the request to the release."""

from __future__ import annotations

from offcut.histogram import Histogram

#: Close around 1 s, which is what offcut promises.
_BOUNDS_S = (0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.8, 0.9, 1.0, 1.2, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0)


class ReleaseTimes:
    """The nodes that are wanted and not released yet, and how long the others took.

    A node is wanted from the moment in which the controller first hears it, from the batch system or from the node's
    agent. It is released when its agent has ended its workers and closes its connection, or else when the batch system
    says that the node is not held any more.
    """

    def __init__(self) -> None:
        self.seconds = Histogram(_BOUNDS_S)
        #: By node: since when it is wanted, in seconds since 1970.
        self._wanted_s: dict[str, float] = {}

    def wanted(self, node: str, now_s: float) -> None:
        """Note that the queue wants a held node; the first time counts."""
        self._wanted_s.setdefault(node, now_s)

    def released(self, node: str, now_s: float) -> bool:
        """Note that a node is not held any more. Return whether it was wanted; others are not counted."""
        since_s = self._wanted_s.pop(node, None)
        if since_s is not None:
            self.seconds.observe(max(0.0, now_s - since_s))
        return since_s is not None

    def waiting(self) -> int:
        """Return how many nodes are wanted and not released."""
        return len(self._wanted_s)

    def longest_s(self, now_s: float) -> float:
        """Return for how long the node that has waited longest is wanted, in seconds; 0 if there is none."""
        return max(0.0, now_s - min(self._wanted_s.values(), default=now_s))
