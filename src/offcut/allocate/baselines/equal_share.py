"""Equal share: every job gets the same number of nodes, as far as its sizes allow; what BFTrainer had to beat."""

from __future__ import annotations

from offcut.allocate.objective import allowed_sizes
from offcut.model import AllocationProblem


def allocate(problem: AllocationProblem) -> dict[str, int]:
    """Share the nodes equally; what a job cannot use goes to those that can use more. If short, earlier jobs first."""
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
    """As in the published replayer: nodes // jobs for each, nothing handed on, and a job whose smallest size equals its
    share gets nothing (an off-by-one that its results contain)."""
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
