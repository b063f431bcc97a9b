"""Forgets jobs that ended long ago, and bounds logs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from offcut.control import State
from offcut.control.ended_jobs import forgotten_before_s, outdated
from offcut.model import events
from offcut.process import clocks
from offcut.process.daemon_thread import in_daemon_thread
from offcut.service import log_files
from offcut.service.job_files import delete_job_files
from offcut.service.paths import StatePaths
from offcut.store.journal import Journal

#: How often it is looked for outdated jobs, and how many are forgotten by one event.
_LOOK_S = 600.0
_AT_ONCE = 200
#: Among this many events a restarted controller looks for jobs whose files its predecessor may not have deleted.
_RECENT_EVENTS = 10_000
#: A log that does not belong to a worker counts as still written to for this long.
_WRITTEN_S = 86400.0


class Retention:
    """Sends events about jobs whose time in the history is over."""

    def __init__(
        self,
        state: State,
        paths: StatePaths,
        journal: Journal,
        now: Callable[[], float],
        handle: Callable[[events.Event], object],
    ) -> None:
        self._state = state
        self._paths = paths
        self._journal = journal
        self._now = now
        self._handle = handle

    async def keep(self) -> None:
        """Look for outdated jobs and large logs now and then, until cancelled."""
        await self.delete_left_files()
        while True:
            self.look()
            await self.bound_logs()
            await asyncio.sleep(_LOOK_S)

    def look(self) -> None:
        """Have the jobs and sweeps forgotten that are outdated now."""
        now_s, jobs = self._now(), self._state.jobs
        ended = self._journal.history.ended_before(forgotten_before_s(self._state.settings, now_s))
        ended += [(job_id, jobs[job_id].ended_s or now_s) for job_id in self._state.ended]
        old = outdated(ended, self._state.settings, now_s)
        for first in range(0, len(old), _AT_ONCE):
            self._handle(events.JobsForgotten(time_s=now_s, jobs=old[first : first + _AT_ONCE], files=True))
        ended = [
            (sweep_id, sweep.ended_s) for sweep_id, sweep in self._state.sweeps.items() if sweep.ended_s is not None
        ]
        for sweep_id in outdated(ended, self._state.settings, now_s):
            jobs_of_trials = self._state.sweeps[sweep_id].job_ids()
            self._handle(events.SweepForgotten(time_s=now_s, sweep=sweep_id, jobs=jobs_of_trials, files=True))

    async def delete_left_files(self) -> None:
        """Delete files of jobs that are forgotten: the controller before this one may have died while it did that."""
        recent = self._journal.recent
        for event in (*recent("jobs_forgotten", _RECENT_EVENTS), *recent("sweep_forgotten", _RECENT_EVENTS)):
            assert isinstance(event, events.JobsForgotten | events.SweepForgotten)
            jobs = event.jobs if isinstance(event, events.JobsForgotten) else (*event.jobs, event.sweep)
            for job in jobs if event.files else ():
                if job not in self._state.jobs:
                    await in_daemon_thread(delete_job_files, self._paths.job(job))

    async def bound_logs(self) -> None:
        """Delete and cut logs that take more of the disk than they may. Raises OSError."""
        most_bytes = self._state.settings.log_bytes
        for job in list(self._state.jobs.values()):
            workers = tuple(
                f"{name}#{node.incarnation}:" for name in job.nodes if (node := self._state.nodes.get(name)) is not None
            )

            def runs(name: str, modified_s: float, workers: tuple[str, ...] = workers) -> bool:
                return name.startswith(workers)

            # In threads: a shared file system may hang.
            await in_daemon_thread(log_files.bound, self._paths.job(job.job.id) / "logs", most_bytes, runs)
        lately_s = clocks.wall_s() - _WRITTEN_S
        for directory in (self._paths.pilots, self._paths.root):
            await in_daemon_thread(log_files.bound, directory, most_bytes, lambda _, at_s: at_s >= lately_s)
