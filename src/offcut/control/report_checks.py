"""Which reports of agents are believed. Pure; asked before anything is journalled.

An agent may report a little late: about a worker that has just been told to stop, or a generation that has just been
replaced. So a report that is not believed is not an error; it is ignored.
"""

from __future__ import annotations

from offcut.control.membership import is_among
from offcut.control.state import JobState, State
from offcut.model.events import Member


def runs(state: State, job_id: str, member: Member) -> bool:
    """Return whether the member is one of the job's: starting, in a generation, or about to leave it."""
    job = state.jobs.get(job_id)
    if job is None:
        return False
    node = state.nodes.get(member.node)
    if node is not None and node.job == job_id and node.incarnation == member.incarnation and node.worker != "none":
        return True
    return (
        is_among(member, job.members)
        or is_among(member, job.state_holders)
        or any(is_among(member, members) for members in job.forming.values())
    )


def speaks_for(state: State, job_id: str, generation: int, member: Member) -> bool:
    """Return whether the member's report about the job's steps in this generation can be true: it is, or was, in it."""
    job = state.jobs.get(job_id)
    if job is None or not 0 < generation <= job.generation:
        return False
    if generation == job.generation and _is_member(state, job_id, member):
        return True  # nearly every report; it must not cost a pass over a thousand members
    members = _members(job, generation)
    return members is not None and is_among(member, members)


def _is_member(state: State, job_id: str, member: Member) -> bool:
    """Return whether the member is in the job's newest generation."""
    node = state.nodes.get(member.node)
    return (
        node is not None and node.worker == "member" and node.incarnation == member.incarnation and node.job == job_id
    )


def _members(job: JobState, generation: int) -> tuple[Member, ...] | None:
    """Return the members of a generation; None if it is so old that they have been forgotten."""
    if generation in job.forming:
        return job.forming[generation]
    if generation == job.formed_generation:
        return (*job.state_holders, job.first_member) if job.first_member is not None else job.state_holders
    return job.members if generation == job.generation else None
