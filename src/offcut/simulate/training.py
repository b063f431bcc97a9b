"""One job of a replay: it progresses along its scaling curve, stands still while it resizes, and keeps its accounts."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

from offcut.model import ScalingCurve
from offcut.simulate.options import Accounting
from offcut.traces.job_list import ListedJob

#: Why a job stands still: it takes members in (or starts), members were taken from it, it was told to give some up.
Cause = Literal["grow", "reclaim", "shrink"]


@lru_cache(maxsize=4096)
def speed_up(curve: ScalingCurve, largest: int) -> tuple[float, ...]:
    """Return the throughput of a curve relative to one node.

    Args:
        curve: the scaling curve.
        largest: the largest number of nodes.

    Returns:
        The speed-up at 0, 1, .. `largest` nodes.
    """
    one = curve.rate_at(1) or 1.0
    return tuple(curve.rate_at(n) / one for n in range(largest + 1))


@dataclass(slots=True, eq=False)
class Training:
    """A job's progress. Work is in node-seconds of the job's own one-node rate, so that networks weigh alike.

    At any time `work + redone + sum(stalled.values()) + waiting` is what the job's nodes could have done at no cost:
    the integral of `speed[assigned]`.
    """

    id: str
    job: ListedJob
    submit_s: float
    accounting: Accounting
    commit_s: float
    speed: tuple[float, ...]
    #: Work after which the job is done.
    goal: float
    updated_s: float
    #: Members of the newest generation, and nodes that the controller has given to the job.
    size: int = 0
    assigned: int = 0
    stalled_until_s: float = -math.inf
    cause: Cause = "grow"
    #: Changes whenever the time of the end has to be computed again.
    changes: int = 0
    #: How often the goal was moved: a trial of a sweep has its next report as its goal.
    goals: int = 0
    work: float = 0.0
    redone: float = 0.0
    waiting: float = 0.0
    stalled: dict[Cause, float] = field(default_factory=lambda: {"grow": 0.0, "reclaim": 0.0, "shrink": 0.0})
    node_s: float = 0.0
    started_s: float | None = None
    ended_s: float | None = None
    resizes: int = 0
    reclaims: int = 0
    #: Reclaims that took all of the job's members.
    wipes: int = 0
    _committed: float = 0.0
    _committed_s: float = 0.0

    @classmethod
    def of(cls, job_id: str, job: ListedJob, now_s: float, accounting: Accounting, commit_s: float) -> Training:
        """Return the training of a job that is submitted now and has not started.

        Args:
            job_id: the id of the job.
            job: the job in the job list.
            now_s: the time, in seconds.
            accounting: how a resize is charged.
            commit_s: seconds between saves of the state; 0: no work is lost with the last node.
        """
        speed = speed_up(job.curve, job.max_nodes)
        goal = job.samples / (job.curve.rate_at(1) or 1.0)
        return cls(job_id, job, now_s, accounting, commit_s, speed, goal, now_s)

    def advance(self, now_s: float) -> None:
        """Account for the time up to `now_s`, in which nothing changed."""
        since_s = self.updated_s
        span_s = now_s - since_s
        if span_s <= 0.0:
            return
        self.updated_s = now_s
        assigned = self.assigned
        if not assigned:
            return
        self.node_s += assigned * span_s
        rate = self.speed[self.size]
        if assigned != self.size:
            self.waiting += (self.speed[assigned] - rate) * span_s
        if not self.size:
            return
        begin_s = min(max(since_s, self.stalled_until_s), now_s)
        if begin_s > since_s:
            self.stalled[self.cause] += rate * (begin_s - since_s)
        if now_s > begin_s:
            if self.commit_s:
                self._commit(begin_s, now_s, rate)
            self.work += rate * (now_s - begin_s)

    def _commit(self, begin_s: float, now_s: float, rate: float) -> None:
        commits = math.floor((now_s - self._committed_s) / self.commit_s)
        if commits > 0:
            self._committed_s += commits * self.commit_s
            self._committed = self.work + rate * max(0.0, self._committed_s - begin_s)

    def resize(self, now_s: float, size: int, cause: Cause, cost_s: float, *, has_state: bool) -> None:
        """Note that a generation was set.

        Args:
            now_s: the time, in seconds.
            size: the number of its members.
            cause: why the job resizes.
            cost_s: what the resize costs, in seconds.
            has_state: whether one of its members has the training's state.
        """
        self.advance(now_s)
        before = self.size
        self.size = size
        self.changes += 1
        if not has_state:
            self._roll_back(now_s)
        if not size:
            return
        if self.started_s is None:
            self.started_s = now_s
        if self.accounting == "published":
            charge = min(cost_s * self.speed[before], self.work)
            self.work -= charge
            self.stalled[cause] += charge
        elif now_s + cost_s > self.stalled_until_s:
            self.stalled_until_s = now_s + cost_s
            self.cause = cause

    def _roll_back(self, now_s: float) -> None:
        """Go back to what was last saved: the state went with its last holder."""
        if self.commit_s:
            self.redone += self.work - self._committed
            self.work = self._committed
            self._committed_s = now_s

    def end_s(self) -> float:
        """Return when the job is done if nothing changes, in seconds; infinite if it stands still."""
        if not self.size:
            return math.inf
        return max(self.updated_s, self.stalled_until_s) + max(0.0, self.goal - self.work) / self.speed[self.size]
