"""Who had the nodes over time, for the first figure of the page."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from offcut.control import State

#: When there are this many points, every second one of the older half is dropped.
_MOST_POINTS = 2048
#: A point names this many jobs, those with the most nodes; the nodes of all others are added up.
_JOBS_PER_POINT = 30
#: The figure has this many jobs.
_JOBS = 8


@dataclass(frozen=True, slots=True)
class NodeCounts:
    """How many nodes each had from `time_s` (seconds since 1970) until the next point.

    `held`: claimed, without a job; `booting`: on the way into a training; `jobs`: members of each job's generation.
    """

    time_s: float
    idle: int
    held: int
    booting: int
    jobs: dict[str, int]
    other_jobs: int = 0

    def same_counts(self, other: NodeCounts) -> bool:
        """Return whether only the time differs."""
        return (self.idle, self.held, self.booting, self.jobs, self.other_jobs) == (
            (other.idle, other.held, other.booting, other.jobs, other.other_jobs)
        )


def count_nodes(time_s: float, state: State) -> NodeCounts:
    """Return who has the nodes at `time_s`, which is now."""
    idle = held = booting = 0
    jobs: Counter[str] = Counter()
    for node in state.nodes.values():
        if node.phase == "idle":
            idle += 1
        elif node.job is None:
            held += 1
        elif node.worker == "member":
            jobs[node.job] += 1
        else:
            booting += 1
    most = dict(sorted(jobs.items(), key=lambda item: (-item[1], item[0]))[:_JOBS_PER_POINT])
    return NodeCounts(time_s, idle, held, booting, most, jobs.total() - sum(most.values()))


@dataclass(slots=True)
class NodeUse:
    """The counts since the controller began, the newest half of the points as they were noted."""

    points: list[NodeCounts] = field(default_factory=list)

    def note(self, counts: NodeCounts) -> bool:
        """Add a point if somebody has another number of nodes than before; return whether that is so."""
        if self.points and counts.same_counts(self.points[-1]):
            return False
        self.points.append(counts)
        if len(self.points) >= _MOST_POINTS:
            half = len(self.points) // 2
            self.points[:half] = self.points[:half:2]
        return True

    def columns(self, now_s: float) -> dict[str, Any]:
        """Return the figure's numbers: `time_s` and one list of counts per owner, which all end at `now_s`.

        The owners are in the order in which they are stacked: jobs first, then `other jobs`, `booting`, `held`, `idle`.
        """
        shown = self._jobs(now_s)
        points = [*self.points, self.points[-1]] if self.points else []
        columns = [[point.jobs.get(job, 0) for point in points] for job in shown]
        others = [point.other_jobs + sum(n for job, n in point.jobs.items() if job not in shown) for point in points]
        rest = [[p.booting for p in points], [p.held for p in points], [p.idle for p in points]]
        return {
            "time_s": [point.time_s for point in self.points] + ([now_s] if self.points else []),
            "jobs": shown,
            "owners": [*shown, "other jobs", "booting", "held", "idle"],
            "counts": [*columns, others, *rest],
        }

    def _jobs(self, now_s: float) -> list[str]:
        """Return the jobs with the most node-seconds, the largest first."""
        node_s: Counter[str] = Counter()
        if not self.points:
            return []
        ends_s = [point.time_s for point in self.points[1:]] + [now_s]
        for point, end_s in zip(self.points, ends_s, strict=True):
            for job, count in point.jobs.items():
                node_s[job] += count * (end_s - point.time_s)  # type: ignore[assignment]
        return [job for job, _ in sorted(node_s.items(), key=lambda item: (-item[1], item[0]))[:_JOBS]]
