"""Which of the things that agents say are believed. Pure, and asked before anything is journalled.

An agent may report a bit late: of a worker that has just been told to stop, or of an epoch that has just been replaced.
So what is not believed is no error. It is ignored.
"""

from __future__ import annotations

from offcut.control.state import JobState, State
from offcut.model.events import Member


def runs(state: State, job_id: str, member: Member) -> bool:
    """Whether the member is one of the job, by what has been decided: on its way, in an epoch, or about to leave it."""
    job = state.jobs.get(job_id)
    if job is None:
        return False
    node = state.nodes.get(member.node)
    if node is not None and node.job == job_id and node.incarnation == member.incarnation and node.worker != "none":
        return True
    return member in job.members or member in job.formed or any(member in members for members in job.forming.values())


def speaks_for(state: State, job_id: str, epoch: int, member: Member) -> bool:
    """Whether what the member says of the job's steps in this epoch can be true: it is, or was, in it."""
    job = state.jobs.get(job_id)
    if job is None or not 0 < epoch <= job.epoch:
        return False
    members = _members(job, epoch)
    return members is not None and member in members


def _members(job: JobState, epoch: int) -> tuple[Member, ...] | None:
    """Those of an epoch; None where it is so old that this has been forgotten."""
    if epoch in job.forming:
        return job.forming[epoch]
    if epoch == job.formed_epoch:
        return (*job.formed, job.first) if job.first is not None else job.formed
    return job.members if epoch == job.epoch else None
