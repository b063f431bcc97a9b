"""Forgets jobs that ended long ago."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from offcut.control import State
from offcut.control.ended_jobs import outdated
from offcut.model import events
from offcut.store.history import History

#: How often it is looked for outdated jobs, and how many are forgotten by one event.
_LOOK_S = 600.0
_AT_ONCE = 200


class Retention:
    """Sends events about jobs whose time in the history is over."""

    def __init__(
        self, state: State, history: History, now: Callable[[], float], handle: Callable[[events.Event], object]
    ) -> None:
        self._state = state
        self._history = history
        self._now = now
        self._handle = handle

    async def keep(self) -> None:
        """Look for outdated jobs now and then, until cancelled."""
        while True:
            self.look()
            await asyncio.sleep(_LOOK_S)

    def look(self) -> None:
        """Have the jobs forgotten that are outdated now."""
        now_s, jobs = self._now(), self._state.jobs
        ended = self._history.ended_before(now_s)
        ended += [(job_id, jobs[job_id].ended_s or now_s) for job_id in self._state.ended]
        old = outdated(ended, self._state.settings, now_s)
        for first in range(0, len(old), _AT_ONCE):
            self._handle(events.JobsForgotten(time_s=now_s, jobs=old[first : first + _AT_ONCE], files=True))
