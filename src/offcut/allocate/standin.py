"""A quick heuristic that answers when the solver or the user's policy does not answer in time.

It is greedy marginal gain within each priority class, higher classes first. It takes milliseconds and is not optimal.
"""

from __future__ import annotations

from dataclasses import replace

from offcut.allocate import policy
from offcut.allocate.baselines import greedy
from offcut.allocate.objective import allowed_sizes
from offcut.model import Allocation, AllocationProblem


def solve(problem: AllocationProblem) -> Allocation:
    """Allocate greedily, one priority class after the other.

    Args:
        problem: what to decide.

    Returns:
        An allowed allocation, not `proven`; its bound is infinite.

    Raises:
        InputError: the greedy rule found no allowed allocation.
    """
    return policy.decide(_by_class, problem, "greedy")


def _by_class(problem: AllocationProblem) -> dict[str, int]:
    """Serve each class from the nodes that higher classes left, less the minimum that lower classes need."""
    if problem.objective != "priority":
        return greedy.allocate(problem)
    least = {job.id: next(iter(allowed_sizes(job, problem.nodes)), 0) for job in problem.jobs}
    nodes: dict[str, int] = {}
    left = problem.nodes - sum(least.values())
    for level in sorted({job.priority for job in problem.jobs}, reverse=True):
        jobs = tuple(job for job in problem.jobs if job.priority == level)
        room = left + sum(least[job.id] for job in jobs)
        found = greedy.allocate(replace(problem, nodes=room, jobs=jobs))
        nodes |= found
        left = room - sum(found.values())
    return nodes
