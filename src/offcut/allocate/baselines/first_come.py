"""First come takes all: each job in turn takes its largest size that fits."""

from __future__ import annotations

from offcut.allocate.objective import allowed_sizes
from offcut.model import AllocationProblem


def allocate(problem: AllocationProblem) -> dict[str, int]:
    """Earlier jobs first; what jobs that may not wait need at least is kept for them."""
    sizes = {job.id: list(allowed_sizes(job, problem.nodes)) for job in problem.jobs}
    left = problem.nodes - sum(s[0] for s in sizes.values())
    nodes = {}
    for job, choices in sizes.items():
        n = max(n for n in choices if n - choices[0] <= max(0, left))
        left -= n - choices[0]
        nodes[job] = n
    return nodes
