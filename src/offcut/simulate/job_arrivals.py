"""The arrivals of a replay: a job list at its own submission times, or repeated so that jobs never run out."""

from __future__ import annotations

import math
from collections.abc import Sequence

from offcut.traces.job_list import ListedJob


class JobArrivals:
    """Returns the jobs of a list as (id, job) pairs, in the order of submission."""

    def __init__(self, jobs: Sequence[ListedJob], *, repeat: bool) -> None:
        self._jobs = list(jobs) if repeat else sorted(jobs, key=lambda job: job.submit_s)
        self._repeat = repeat
        self._taken = 0

    def next_s(self) -> float:
        """Return the submission time (s) of the next job; inf if the list is repeated or used up."""
        if self._repeat or self._taken == len(self._jobs):
            return math.inf
        return self._jobs[self._taken].submit_s

    def submitted_by(self, now_s: float, waiting: int, wanted: int) -> list[tuple[str, ListedJob]]:
        """Return the jobs submitted since the last call; with a repeated list, enough to have `wanted` jobs waiting.

        Args:
            now_s: the present time, in seconds on the list's clock.
            waiting: the number of jobs that wait already.
            wanted: the number of waiting jobs to reach, if the list is repeated.

        Returns:
            Pairs of a unique id and the job.
        """
        taken: list[tuple[str, ListedJob]] = []
        while (waiting + len(taken) < wanted) if self._repeat else (self.next_s() <= now_s):
            turn, place = divmod(self._taken, len(self._jobs))
            job = self._jobs[place]
            taken.append((job.id if turn == 0 else f"{job.id}~{turn + 1}", job))
            self._taken += 1
        return taken
