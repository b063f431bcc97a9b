"""First come takes all: each job in turn takes its largest size that fits."""

from __future__ import annotations

from offcut.allocate.value import allowed
from offcut.model import AllocationProblem


def allocate(problem: AllocationProblem) -> dict[str, int]:
    """Earlier jobs first; what jobs that may not wait need at least is kept for them."""
    sizes = {job.id: list(allowed(job, problem.nodes)) for job in problem.jobs}
    left = problem.nodes - sum(s[0] for s in sizes.values())
    nodes = {}
    for job, allowed_sizes in sizes.items():
        n = max(n for n in allowed_sizes if n - allowed_sizes[0] <= max(0, left))
        left -= n - allowed_sizes[0]
        nodes[job] = n
    return nodes
