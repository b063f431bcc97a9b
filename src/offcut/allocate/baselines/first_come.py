"""First come, first served: each job in turn gets the largest of its sizes that fits."""

from __future__ import annotations

from offcut.allocate.objective import allowed_sizes
from offcut.model import AllocationProblem


def allocate(problem: AllocationProblem) -> dict[str, int]:
    """Serve earlier jobs first; the minimum of jobs that may not wait is reserved for them.

    Args:
        problem: what to decide.

    Returns:
        The node count of each job, by its id.
    """
    sizes = {job.id: list(allowed_sizes(job, problem.nodes)) for job in problem.jobs}
    left = problem.nodes - sum(s[0] for s in sizes.values())
    nodes = {}
    for job, choices in sizes.items():
        n = max(n for n in choices if n - choices[0] <= max(0, left))
        left -= n - choices[0]
        nodes[job] = n
    return nodes
