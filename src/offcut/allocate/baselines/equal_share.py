"""Equal share: every job gets the same number of nodes, as far as its sizes allow.

BFTrainer's baseline (arXiv 2106.12091).
"""

from __future__ import annotations

from offcut.allocate.objective import allowed_sizes
from offcut.model import AllocationProblem


def allocate(problem: AllocationProblem) -> dict[str, int]:
    """Share the nodes equally; nodes that a job cannot use go to jobs that can. Remainders go to earlier jobs.

    Args:
        problem: what to decide.

    Returns:
        The node count of each job, by its id.
    """
    sizes = {job.id: list(allowed_sizes(job, problem.nodes)) for job in problem.jobs}
    order = [job.id for job in reversed(problem.jobs)]  # the last to be served get what is left over: the earlier jobs
    order.sort(key=lambda job: sizes[job][-1])
    nodes: dict[str, int] = {}
    left = problem.nodes
    must = sum(sizes[job][0] for job in order)
    for i, job in enumerate(order):
        must -= sizes[job][0]
        share = min(left // (len(order) - i), left - must)
        nodes[job] = max((n for n in sizes[job] if n <= share), default=sizes[job][0])
        left -= nodes[job]
    return nodes


def allocate_published(problem: AllocationProblem) -> dict[str, int]:
    """Share the nodes as BFTrainer's published replayer does: `nodes // jobs` for each job.

    Nodes that a job cannot use stay idle, and a job whose smallest size equals its share gets no nodes: an off-by-one
    that the published results contain.

    Args:
        problem: what to decide.

    Returns:
        The node count of each job, by its id.
    """
    sizes = {job.id: list(allowed_sizes(job, problem.nodes)) for job in problem.jobs}
    left = problem.nodes - sum(of_job[0] for of_job in sizes.values())  # the rest is for those that may not wait
    nodes = {}
    for job, of_job in sizes.items():
        share = problem.nodes // len(sizes)
        smallest = next((n for n in of_job if n > 0), 0)
        wanted = max((n for n in of_job if n <= share), default=of_job[0]) if share > smallest else of_job[0]
        nodes[job] = wanted if wanted - of_job[0] <= left else of_job[0]
        left -= nodes[job] - of_job[0]
    return nodes
