"""Which of our nodes to leave for jobs that pend on a limit that our pilots use up. Pure.

Preemption does not relieve limits of an account, a user or a QOS: such a job would wait until pilots end by themselves.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from offcut.cluster.slurm.records import JobRow, View
from offcut.cluster.slurm.waiting_jobs import PILOT_NICE, MadeWay

_NONE: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Relief:
    """What is done for jobs that pend on limits."""

    #: Our nodes to leave, and why.
    leave: dict[str, str]
    #: Nothing is claimed until they have started: new pilots would use the limit up again.
    waits: bool


@dataclass(slots=True)
class LimitRelief:
    """Decides it, look after look. A job that leaving has not helped is ignored for a while."""

    made_way: MadeWay = field(default_factory=MadeWay)
    #: For each account, itself and those above it that have a limit for all their users together.
    limited_accounts: Mapping[str, frozenset[str]] = field(default_factory=dict)

    def decide(self, view: View, held: Mapping[str, JobRow]) -> Relief:
        """Return what to do.

        Args:
            view: The queue.
            held: Our nodes that are not released yet, and their pilots as Slurm shows them.
        """
        self.made_way.forget({job.id for job in view.waiting}, view.time_s)
        left = dict(held)
        leave: dict[str, str] = {}
        waits = False
        for job in view.waiting:
            if job.nice >= PILOT_NICE or self.made_way.in_vain(job.id, view.time_s):
                continue
            if self.made_way.has_noted(job.id):
                waits = True
            freed = [node for node, pilot in left.items() if self._shares_limit(job, pilot, view)]
            needs = job.tasks if "Jobs" in job.reason or "JobLimit" in job.reason else job.tasks * job.node_count
            for node in freed[:needs]:
                del left[node]
                leave[node] = f"job {job.id} waits for a limit that pilots use up ({job.reason})"
            if freed:
                self.made_way.note(job.id, view.time_s)
                waits = True
        return Relief(leave, waits)

    def _shares_limit(self, job: JobRow, pilot: JobRow, view: View) -> bool:
        """Return whether the pilot counts against the limit on which the job pends."""
        reason = job.reason
        same_user, same_account = job.user == pilot.user, job.account == pilot.account
        if reason.startswith("AssocGrp"):
            limited = self.limited_accounts
            return same_account or not limited.get(job.account, _NONE).isdisjoint(limited.get(pilot.account, _NONE))
        if reason.startswith("Assoc"):
            return same_account and same_user
        if not reason.startswith(("QOS", "MaxCpuPer", "MaxNodePer", "MaxMemPer", "MaxGRESPer", "MaxBillingPer")):
            return False
        if not set(_qos(job, view)) & set(_qos(pilot, view)):
            return False
        if "PerUser" in reason:
            return same_user
        return same_account if "PerAccount" in reason else True


def _qos(job: JobRow, view: View) -> Iterator[str]:
    """Yield the QOS whose limits hold for the job: its own, and those of its partitions."""
    if job.qos:
        yield job.qos
    for name in job.partitions:
        row = view.partitions.get(name)
        if row is not None and row.qos:
            yield row.qos
