"""Admission: which jobs take part in the allocation.

Every job that has ever had a node does, until it ends. Of the others, in the order of the queue, as many as could use
the free nodes are put forward: the allocation gives one of them a node only while that node is worth more there than in
the jobs that run, so the solver itself decides how many jobs to keep running. `Settings.max_jobs` caps that number. A
job that is about to end, or whose script only comes to its end, does not count against the cap: its successor boots
before it has gone.

A job that needs more nodes than there are keeps nobody waiting: it is passed over until there are enough. One that
needs more than are free may get them from others, but takes none of the room of those behind it.
"""

from __future__ import annotations

from bisect import bisect_right

from offcut.control.state import LIVE, JobState, State

#: At least so many jobs that have not started are put forward, whatever is free.
_LEAST = 8


def enqueue(state: State, job: JobState) -> None:
    """A new job waits behind those of its priority."""
    at = bisect_right(state.queue, -job.job.priority, key=lambda job_id: -state.jobs[job_id].job.priority)
    state.queue.insert(at, job.job.id)


def note_start(state: State, job: JobState) -> None:
    """The job has nodes: it takes part from now on."""
    if job.job.id not in state.started:
        state.started[job.job.id] = None
        state.queue.remove(job.job.id)


def note_end(state: State, job: JobState) -> None:
    if state.started.pop(job.job.id, "never") == "never":
        state.queue.remove(job.job.id)


def admitted(state: State) -> list[JobState]:
    """The jobs that take part: the highest priority first, then those that started, then the order of the queue."""
    jobs = [job for job_id in state.started if (job := state.jobs[job_id]).phase in LIVE]
    if state.queue:
        jobs += _candidates(state, jobs)
    if any(job.job.priority for job in jobs):
        jobs.sort(key=lambda job: -job.job.priority)
    return jobs


def _candidates(state: State, running: list[JobState]) -> list[JobState]:
    limit = state.settings.max_jobs
    found: list[JobState] = []
    room = len(state.free)
    nodes = room + sum(len(job.nodes) for job in running)
    without_room = 0
    for job_id in state.queue:
        job = state.jobs[job_id]
        if job.phase not in LIVE or not _fits(job, nodes):
            continue
        usable = job.job.sizes.largest_within(room)
        if limit is None:
            if len(found) >= _LEAST and room <= 0:
                break
            if usable == 0 and without_room >= _LEAST:
                continue
            without_room += usable == 0
        elif _rivals(running, job, nodes) + len(found) >= limit:
            # The queue is in order of priority: those behind have no fewer rivals.
            break
        found.append(job)
        room -= usable
    return found


def _fits(job: JobState, nodes: int) -> bool:
    """Whether so many nodes, which are all there are, could carry the job. Before there are any, one is expected."""
    return job.job.sizes.smallest <= max(1, nodes)


def _rivals(running: list[JobState], job: JobState, nodes: int) -> int:
    """Started jobs that the job has to wait for: a job of a higher priority is not kept out by those of a lower one,
    and none by those that cannot run."""
    priority = job.job.priority
    return sum(other.job.priority >= priority and not other.nears_end and _fits(other, nodes) for other in running)
