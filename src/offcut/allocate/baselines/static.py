"""Static sizes: jobs that cannot be resized, as in an ordinary batch queue. Each runs at one size or waits."""

from __future__ import annotations

from offcut.allocate.objective import allowed_sizes
from offcut.model import AllocationProblem, JobRequest

#: The size of a job is its largest size with at least this share of the per-node rate of its smallest size.
EFFICIENCY = 0.7


def fixed_size(job: JobRequest) -> int:
    """Return the one size that a job runs at.

    Args:
        job: the job.

    Returns:
        Nodes; 0 if the job has no size above 0.
    """
    sizes = [n for n in allowed_sizes(job, job.curve.max_nodes) if n > 0]
    if not sizes:
        return 0
    least = EFFICIENCY * job.curve.rate_at(sizes[0]) / sizes[0]
    return max((n for n in sizes if job.curve.rate_at(n) / n >= least), default=sizes[0])


def allocate(problem: AllocationProblem) -> dict[str, int]:
    """Keep jobs that hold their size; then start the others in order, each if its size fits.

    Args:
        problem: what to decide.

    Returns:
        The node count of each job, by its id.
    """
    must = {job.id: next(allowed_sizes(job, problem.nodes)) for job in problem.jobs}
    left = problem.nodes - sum(must.values())
    nodes = dict(must)
    running = [job for job in problem.jobs if job.current > 0 and job.current >= fixed_size(job)]
    ids = {job.id for job in running}
    for job in [*running, *(job for job in problem.jobs if job.id not in ids)]:
        size = fixed_size(job)
        if not job.locked and must[job.id] < size <= left + must[job.id]:
            nodes[job.id] = size
            left -= size - must[job.id]
    return nodes
