"""Static sizes: jobs that cannot be resized, as in an ordinary batch queue. Each runs at one size or waits."""

from __future__ import annotations

from offcut.allocate.objective import allowed_sizes
from offcut.model import AllocationProblem, JobRequest

#: The size of a job is its largest with at least this share of the rate per node that its smallest size has.
EFFICIENCY = 0.7


def size_of(job: JobRequest) -> int:
    """The one size of a job."""
    sizes = [n for n in allowed_sizes(job, job.curve.max_nodes) if n > 0]
    if not sizes:
        return 0
    least = EFFICIENCY * job.curve.rate_at(sizes[0]) / sizes[0]
    return max((n for n in sizes if job.curve.rate_at(n) / n >= least), default=sizes[0])


def allocate(problem: AllocationProblem) -> dict[str, int]:
    """Jobs that hold their size keep it; then the others start in order, each when its size fits."""
    must = {job.id: next(allowed_sizes(job, problem.nodes)) for job in problem.jobs}
    left = problem.nodes - sum(must.values())
    nodes = dict(must)
    running = [job for job in problem.jobs if job.current > 0 and job.current >= size_of(job)]
    ids = {job.id for job in running}
    for job in [*running, *(job for job in problem.jobs if job.id not in ids)]:
        size = size_of(job)
        if not job.locked and must[job.id] < size <= left + must[job.id]:
            nodes[job.id] = size
            left -= size - must[job.id]
    return nodes
