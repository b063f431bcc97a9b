"""Which jobs come when: a job list as it was submitted, or over and over so that the queue never runs dry."""

from __future__ import annotations

import math
from collections.abc import Sequence

from offcut.traces.job_list import ListedJob


class JobArrivals:
    """Hands out (id, job) pairs in the order of submission."""

    def __init__(self, jobs: Sequence[ListedJob], *, repeat: bool) -> None:
        self._jobs = list(jobs) if repeat else sorted(jobs, key=lambda job: job.submit_s)
        self._repeat = repeat
        self._taken = 0

    def next_s(self) -> float:
        """When the next job is submitted by the list's own clock; infinite where there is none to wait for."""
        if self._repeat or self._taken == len(self._jobs):
            return math.inf
        return self._jobs[self._taken].submit_s

    def submitted_by(self, now_s: float, waiting: int, wanted: int) -> list[tuple[str, ListedJob]]:
        """The jobs submitted by `now_s`; with a repeated list as many as make `waiting` jobs `wanted`."""
        taken: list[tuple[str, ListedJob]] = []
        while (waiting + len(taken) < wanted) if self._repeat else (self.next_s() <= now_s):
            turn, place = divmod(self._taken, len(self._jobs))
            job = self._jobs[place]
            taken.append((job.id if turn == 0 else f"{job.id}~{turn + 1}", job))
            self._taken += 1
        return taken
