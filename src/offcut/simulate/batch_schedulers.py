"""The textbook schedulers of a batch queue: first come first served, EASY and conservative backfilling.

A scheduler is called for every submission (`submit`) and end (`end`) of a job, then once per instant for the jobs that
start (`start_jobs`). It knows requested times only, never run times. Sources: D. Lifka, "The ANL/IBM SP scheduling
system", 1995 (EASY); A. Mu'alem and D. Feitelson, "Utilization, predictability, workloads, and user runtime estimates
in scheduling the IBM SP2 with backfilling", IEEE TPDS 12(6), 2001 (both, and compression after early ends).
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Sequence
from typing import Literal

from offcut.simulate.availability_profile import AvailabilityProfile

Scheduler = Literal["fcfs", "easy", "conservative"]
#: Pairs (time, number of nodes that the queue leaves free from then on); see `FreeNodes.set_expected_ends`.
ExpectedFree = list[tuple[float, int]]


class FirstComeFirstServed:
    """Starts jobs in the order of their submission; the first that does not fit delays all later ones."""

    def __init__(self, machine: int, nodes: Sequence[int], requested_s: Sequence[float]) -> None:
        self.nodes = nodes
        self.requested_s = requested_s
        self.free = machine
        self.queue: list[int] = []
        #: (latest end, job) of the running jobs, soonest first.
        self.running: list[tuple[float, int]] = []
        self._latest_end_s: dict[int, float] = {}

    def submit(self, job: int, now_s: float) -> None:
        """Add a job to the queue.

        Args:
            job: the number of the job.
            now_s: the present time, in seconds.
        """
        self.queue.append(job)

    def end(self, job: int, now_s: float) -> None:
        """Free the nodes of a job that ended.

        Args:
            job: the number of the job.
            now_s: the present time, in seconds.
        """
        del self.running[bisect_left(self.running, (self._latest_end_s.pop(job), job))]
        self.free += self.nodes[job]

    def start_jobs(self, now_s: float) -> list[int]:
        """Start the jobs that fit.

        Args:
            now_s: the present time, in seconds.

        Returns:
            The numbers of the started jobs, in the order in which they take nodes.
        """
        count = 0
        while count < len(self.queue) and self.nodes[self.queue[count]] <= self.free:
            self._start(self.queue[count], now_s)
            count += 1
        started = self.queue[:count]
        del self.queue[:count]
        return started

    def wake_s(self) -> float:
        """Return the next time (s) at which a job starts without a submission or an end; inf if there is none."""
        return math.inf

    def expected_free(self, now_s: float) -> ExpectedFree:
        """Return how many nodes the queue expects to leave free: from the first waiting job's start on.

        Args:
            now_s: the present time, in seconds.
        """
        if not self.queue:
            return []
        shadow_s, extra = self._reservation()
        return [(shadow_s, extra)]

    def _start(self, job: int, now_s: float) -> None:
        """Start a job."""
        latest_end_s = now_s + self.requested_s[job]
        self.free -= self.nodes[job]
        self._latest_end_s[job] = latest_end_s
        insort(self.running, (latest_end_s, job))

    def _reservation(self) -> tuple[float, int]:
        """Return the latest start of the first waiting job (its shadow time), and the nodes free beside it then."""
        wanted = self.nodes[self.queue[0]]
        free = self.free
        shadow_s = -math.inf
        for latest_end_s, job in self.running:
            if free >= wanted and latest_end_s > shadow_s:
                break
            free += self.nodes[job]
            shadow_s = latest_end_s
        return shadow_s, free - wanted


class Easy(FirstComeFirstServed):
    """EASY backfilling: a later job may start if it does not delay the start of the first one."""

    def start_jobs(self, now_s: float) -> list[int]:
        """Start the jobs that fit in order, then later ones that do not delay the first waiting job.

        Args:
            now_s: the present time, in seconds.

        Returns:
            The numbers of the started jobs, in the order in which they take nodes.
        """
        started = super().start_jobs(now_s)
        if not self.free or len(self.queue) < 2:
            return started
        shadow_s, extra = self._reservation()
        kept = self.queue[:1]
        for place in range(1, len(self.queue)):
            if not self.free:
                kept += self.queue[place:]
                break
            job = self.queue[place]
            nodes = self.nodes[job]
            in_time = now_s + self.requested_s[job] <= shadow_s
            if nodes <= self.free and (in_time or nodes <= extra):
                extra -= 0 if in_time else nodes
                self._start(job, now_s)
                started.append(job)
            else:
                kept.append(job)
        self.queue = kept
        return started


class Conservative:
    """Conservative backfilling: every job gets a reservation at its submission, which can only move earlier."""

    def __init__(self, machine: int, nodes: Sequence[int], requested_s: Sequence[float]) -> None:
        self.nodes = nodes
        self.requested_s = requested_s
        self.profile = AvailabilityProfile(machine, -math.inf)
        #: Queued jobs in the order of submission, with their reserved starts.
        self.reserved_s: dict[int, float] = {}
        self._latest_end_s: dict[int, float] = {}
        self._ended_early = False

    def submit(self, job: int, now_s: float) -> None:
        """Add a job to the queue.

        Args:
            job: the number of the job.
            now_s: the present time, in seconds.
        """
        self._compress(now_s)
        self._reserve(job)

    def end(self, job: int, now_s: float) -> None:
        """Free the nodes of a job that ended.

        Args:
            job: the number of the job.
            now_s: the present time, in seconds.
        """
        latest_end_s = self._latest_end_s.pop(job)
        if latest_end_s > now_s:
            self.profile.forget_before(now_s)
            self.profile.change(now_s, latest_end_s, self.nodes[job])
            self._ended_early = True

    def start_jobs(self, now_s: float) -> list[int]:
        """Move all reservations as early as possible, then start the jobs whose reservation has come.

        Args:
            now_s: the present time, in seconds.

        Returns:
            The numbers of the started jobs, in the order in which they take nodes.
        """
        self._compress(now_s)
        started = [job for job, start_s in self.reserved_s.items() if start_s <= now_s]
        for job in started:
            self._latest_end_s[job] = self.reserved_s.pop(job) + self.requested_s[job]
        return started

    def wake_s(self) -> float:
        """Return the next time (s) at which a job starts without a submission or an end; inf if there is none."""
        return min(self.reserved_s.values(), default=math.inf)

    def expected_free(self, now_s: float) -> ExpectedFree:
        """Return how many nodes the queue expects to leave free, by its reservations.

        Args:
            now_s: the present time, in seconds.
        """
        return list(zip(self.profile.times[1:], self.profile.free[1:], strict=True)) if self.reserved_s else []

    def _compress(self, now_s: float) -> None:
        """Move each reservation after early ends, in the order of submission, to the first time at which it fits."""
        self.profile.forget_before(now_s)
        if not self._ended_early:
            return
        self._ended_early = False
        for job, start_s in self.reserved_s.items():
            if start_s > now_s:
                self.profile.change(start_s, start_s + self.requested_s[job], self.nodes[job])
                self._reserve(job)

    def _reserve(self, job: int) -> None:
        """Reserve the first interval in which the job fits."""
        start_s = self.profile.earliest(self.nodes[job], self.requested_s[job])
        self.profile.change(start_s, start_s + self.requested_s[job], -self.nodes[job])
        self.reserved_s[job] = start_s


SCHEDULERS: dict[Scheduler, type[FirstComeFirstServed] | type[Conservative]] = {
    "fcfs": FirstComeFirstServed,
    "easy": Easy,
    "conservative": Conservative,
}
