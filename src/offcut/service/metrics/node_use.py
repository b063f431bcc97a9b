"""How many node-seconds were idle and held, added up as time passes."""

from __future__ import annotations

from offcut.control import State

#: Nodes are counted at most this often: to count 10,000 takes part of a millisecond.
_LEAST_S = 0.05


class NodeUse:
    """Node-seconds since this controller began.

    The state does not change between two events, so the counts just before an event are those since the one before it.
    Events that follow each other within 0.05 s share one count.
    """

    def __init__(self, now_s: float) -> None:
        self.idle_node_s = 0.0
        self.held_node_s = 0.0
        self._until_s = now_s
        self._claimed_node_s = 0.0

    def claimed_node_s(self, trained_node_s: float) -> float:
        """Return the node-seconds that were held without training; never less than before.

        Args:
            trained_node_s: those in which nodes trained.
        """
        self._claimed_node_s = max(self._claimed_node_s, self.held_node_s - trained_node_s)
        return self._claimed_node_s

    def advance(self, state: State, now_s: float, *, at_once: bool = False) -> None:
        """Add the time up to now. Call it before every event.

        Args:
            state: as it has been since the last event.
            now_s: the time of the next event, in seconds since 1970.
            at_once: count now, also if that was done a moment ago.
        """
        passed_s = now_s - self._until_s
        if passed_s <= 0 or (passed_s < _LEAST_S and not at_once):
            return
        idle = sum(node.phase == "idle" for node in state.nodes.values())
        self.idle_node_s += idle * passed_s
        self.held_node_s += (len(state.nodes) - idle) * passed_s
        self._until_s = now_s
