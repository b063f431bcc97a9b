"""Gathers events about nodes and workers that come within a moment, so that they are answered as one event.

When the queue wants hundreds of nodes, their agents report one by one. Answered one by one, each report would set a
generation of its own, which would be sent to every member that is left.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from offcut.model import events

#: The longest that an event waits for others.
_LONGEST_S = 0.05
#: With fewer agents than this, no event waits: a generation costs little to send, and a moment of training is lost.
_LEAST_AGENTS = 16


def gathering_time_s(agents: int) -> float:
    """Return how long an event waits for others while `agents` agents are connected."""
    return _LONGEST_S if agents >= _LEAST_AGENTS else 0.0


class EventGatherer:
    """Holds events back for a moment.

    Args:
        handle: Is given the events in order, as one event; returns False if it cannot answer it.
        agents: How many are connected.

    Any other event must call `flush` first, so that events are answered in the order in which they came.
    """

    def __init__(self, handle: Callable[[events.Event], bool], agents: Callable[[], int]) -> None:
        self._handle = handle
        self._agents = agents
        self._waiting: list[events.GatheredEvent] = []
        self._timer: asyncio.TimerHandle | None = None

    def add(self, event: events.GatheredEvent, *, at_once: bool = False) -> None:
        """Have the event answered within a moment, together with those that wait; `at_once` if it must not wait."""
        self._waiting.append(event)
        wait_s = 0.0 if at_once else gathering_time_s(self._agents())
        if wait_s <= 0.0:
            self.flush()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(wait_s, self.flush)

    def flush(self) -> None:
        """Have the events that wait answered now."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting, self._waiting = self._waiting, []
        if len(waiting) > 1 and self._handle(events.EventsGathered(time_s=waiting[-1].time_s, events=tuple(waiting))):
            return
        # There is only one; or one of them cannot be answered, and the others must not be lost with it.
        for event in waiting:
            self._handle(event)
