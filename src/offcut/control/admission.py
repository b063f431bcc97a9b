"""Admission: which jobs take part in the allocation.

Every job that has ever had a node does, until it ends. Of the others, in the order of the queue, as many as could use
the free nodes are put forward: the allocation gives one of them a node only while that node is worth more there than in
the jobs that run, so the solver itself decides how many jobs to keep running. `Settings.max_jobs` caps that number. A
job that is about to end, or whose script only comes to its end, does not count against the cap: its successor boots
before it has gone.

A job that needs more nodes than there are is passed over until there are enough, so that no other job waits for it. One
that needs more than are free may get them from other jobs, and takes no room from those behind it.
"""

from __future__ import annotations

from bisect import bisect_right

from offcut.control.state import LIVE, JobState, State

#: At least this many jobs that have not started take part, even if few nodes are free.
_LEAST = 8


def enqueue(state: State, job: JobState) -> None:
    """Put a new job into the queue, behind those of its priority."""
    at = bisect_right(state.queue, -job.job.priority, key=lambda job_id: -state.jobs[job_id].job.priority)
    state.queue.insert(at, job.job.id)


def note_start(state: State, job: JobState) -> None:
    """Note that the job has nodes: from now on it takes part until it ends."""
    if job.job.id not in state.started:
        state.started[job.job.id] = None
        state.queue.remove(job.job.id)


def note_end(state: State, job: JobState) -> None:
    if state.started.pop(job.job.id, "never") == "never":
        state.queue.remove(job.job.id)


def admitted(state: State) -> list[JobState]:
    """Return the jobs that take part, by priority; of one priority, those that started come before the queue."""
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
        elif _jobs_before(running, job, nodes) + len(found) >= limit:
            # The queue is in order of priority: those behind have at least as many jobs before them.
            break
        found.append(job)
        room -= usable
    return found


def _fits(job: JobState, nodes: int) -> bool:
    """Return whether the job could run on all nodes there are. With none yet, one is expected."""
    return job.job.sizes.smallest <= max(1, nodes)


def _jobs_before(running: list[JobState], job: JobState, nodes: int) -> int:
    """Return how many started jobs the job has to wait for: those of its own or a higher priority that can run."""
    priority = job.job.priority
    return sum(other.job.priority >= priority and not other.nears_end and _fits(other, nodes) for other in running)
