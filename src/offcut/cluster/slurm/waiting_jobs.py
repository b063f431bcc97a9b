"""Finds nodes to leave for jobs that wait and for which Slurm does not preempt us. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

from offcut.cluster.slurm.records import JobRow, View, expand

#: Pilots have this nice value. They do not leave for jobs with the same or a higher one (other controllers' pilots).
PILOT_NICE = 10000
#: Reasons of jobs that wait for nodes, and for nothing else.
_WAITS_FOR_NODES = ("None", "Resources", "Priority", "Nodes required")
#: This many jobs that are planned elsewhere are tried on our nodes, those of the highest priority: it takes time.
_MOST_PLANNED = 200
#: Plans of the scheduler are rounded to minutes.
_ROUNDING_S = 60.0


def waits_for_nodes(reason: str) -> bool:
    """Return whether a pending job waits for nodes by its reason, and not for a limit, a date, or another job.

    `ReqNodeNotAvail` does not: such a job waits for nodes that are down, drained or reserved.
    """
    return reason.startswith(_WAITS_FOR_NODES)


@dataclass(slots=True)
class MadeWay:
    """The jobs for which nodes were left, and when.

    One that has not started within `patience_s` cannot use those nodes.

    Such a job is ignored for `ignore_s`; otherwise pilots would leave and return for as long as it waits.
    """

    patience_s: float = 60.0
    ignore_s: float = 600.0
    _since_s: dict[str, float] = field(default_factory=dict)

    def note(self, job: str, now_s: float) -> None:
        """Note that nodes are left for this job."""
        self._since_s.setdefault(job, now_s)

    def has_noted(self, job: str) -> bool:
        """Return whether nodes were left for this job, and it still waits."""
        return job in self._since_s

    def in_vain(self, job: str, now_s: float) -> bool:
        """Return whether nodes were left for this job and it did not start."""
        return now_s - self._since_s.get(job, now_s) > self.patience_s

    def forget(self, waiting: Collection[str], now_s: float) -> None:
        """Forget jobs that do not wait any more, and those that have been ignored for long enough."""
        limit_s = self.patience_s + self.ignore_s
        self._since_s = {job: s for job, s in self._since_s.items() if job in waiting and now_s - s <= limit_s}


def nodes_to_leave(
    view: View,
    ends_s: Mapping[str, float | None],
    idle: Iterable[str],
    made_way: MadeWay,
    leaves_for: Callable[[JobRow], bool] = lambda _: True,
    kinds: Mapping[str, object] | None = None,
) -> dict[str, str]:
    """Return which of our nodes waiting jobs would start on, and for each the reason to leave it.

    Args:
        view: The queue.
        ends_s: Our nodes, and when the pilot of each ends.
        idle: Nodes that are idle or about to be; jobs use these first.
        made_way: For which jobs nodes were left before; updated.
        leaves_for: Whether pilots leave for this job: Slurm does not preempt them for it.
        kinds: What each node has (features, generic resources). A job that is planned on nodes of one kind may not be
            able to use another; nodes that are not named are all of one kind.
    """
    made_way.forget({job.id for job in view.waiting}, view.time_s)
    room = _Room(view.time_s, idle=dict.fromkeys(idle), ours=dict(ends_s))
    for reservation in view.reservations:
        room.note_plan(expand(reservation.nodes), reservation.start_s)
    leave: dict[str, str] = {}
    usable: dict[tuple[str, ...], frozenset[str]] = {}
    planned = 0
    for job in view.waiting:
        if not room.ours:
            break
        patient = job.nice >= PILOT_NICE or made_way.in_vain(job.id, view.time_s)
        if not patient and waits_for_nodes(job.reason) and leaves_for(job):
            if job.partitions not in usable:
                usable[job.partitions] = _usable(job.partitions, view)
            fit = usable[job.partitions]
            # A row of an array shows the plan of one of its tasks only.
            if job.start_s is None or job.tasks > 1:
                found = room.fitting(job, fit)
            elif not (found := room.planned(job)) and planned < _MOST_PLANNED:
                # A plan on nodes of others may be later than the job could start on ours.
                found = room.fitting(job, _like(job, fit, kinds or {}))
                planned += 1
            for node in found:
                leave[node] = f"job {job.id} waits for it"
            if found:
                made_way.note(job.id, view.time_s)
        if job.scheduled and job.start_s is not None:
            room.note_plan(expand(job.scheduled), job.start_s)
    return leave


def _usable(partitions: Iterable[str], view: View) -> frozenset[str]:
    """Return those of our nodes that these partitions have, too. A partition that we cannot see may have any node."""
    rows = [view.partitions.get(name) for name in partitions]
    if any(row is None for row in rows):
        return frozenset(view.nodes)
    return frozenset(node for row in rows if row is not None for node in expand(row.nodes) if node in view.nodes)


def _like(job: JobRow, nodes: frozenset[str], kinds: Mapping[str, object]) -> frozenset[str]:
    """Return those of the nodes that are of a kind on which the job is planned."""
    planned = {kinds.get(node) for node in expand(job.scheduled)}
    return frozenset(node for node in nodes if kinds.get(node) in planned) if planned else nodes


@dataclass(slots=True)
class _Room:
    """The nodes that are idle and those that we hold, less what jobs of a higher priority will use."""

    now_s: float
    idle: dict[str, None]
    ours: dict[str, float | None]
    #: When a reservation, or a job of a higher priority, is planned to begin on a node.
    _planned_s: dict[str, float] = field(default_factory=dict)

    def note_plan(self, nodes: Iterable[str], start_s: float) -> None:
        """Note that something is planned on these nodes: a job that would not end before does not start there."""
        for node in nodes:
            if node in self.idle or node in self.ours:
                self._planned_s[node] = min(start_s, self._planned_s.get(node, math.inf))

    def planned(self, job: JobRow) -> list[str]:
        """Return our nodes on which the job is planned for the end of our pilots: it waits for us."""
        nodes = expand(job.scheduled)
        due = [node for node in nodes if node in self.ours and _ends_by(self.ours[node], job.start_s or 0.0)]
        if due:
            self._use([node for node in nodes if node in self.idle], due)
        return due

    def fitting(self, job: JobRow, usable: Collection[str]) -> list[str]:
        """Return our nodes that, with what is idle, are enough for the job's tasks, or for as many as fit."""
        left: list[str] = []
        if job.node_count > len(self.idle) + len(self.ours):
            return left
        planned, required = expand(job.scheduled), expand(job.required)
        for _ in range(job.tasks):
            idle = [node for node in self.idle if node in usable and self._lasts(node, job)]
            ours = [node for node in self.ours if node in usable and self._lasts(node, job)]
            ours.sort(key=lambda node: (node not in required, node not in planned))
            must = sum(node in required for node in ours)
            short = max(must, job.node_count - len(idle))
            if not usable or short > len(ours):
                break
            self._use(idle[: max(0, job.node_count - short)], ours[:short])
            left += ours[:short]
        return left

    def _lasts(self, node: str, job: JobRow) -> bool:
        """Return whether the job, begun now, would end before what is planned on the node.

        If its limit is not known, it would.
        """
        planned_s = self._planned_s.get(node)
        if planned_s is None or job.limit_s is None:
            return True
        return self.now_s + job.limit_s <= planned_s + _ROUNDING_S

    def _use(self, idle: Iterable[str], ours: Iterable[str]) -> None:
        for node in idle:
            del self.idle[node]
        for node in ours:
            del self.ours[node]


def _ends_by(end_s: float | None, start_s: float) -> bool:
    return end_s is None or start_s <= end_s + _ROUNDING_S
