"""A quick answer for when the solver, or the user's policy, does not come back.

Greedy marginal gain within each priority class, higher classes first. It takes milliseconds, and is not optimal.
"""

from __future__ import annotations

from dataclasses import replace

from offcut.allocate import policy
from offcut.allocate.baselines import greedy
from offcut.allocate.objective import allowed_sizes
from offcut.model import Allocation, AllocationProblem


def solve(problem: AllocationProblem) -> Allocation:
    """An allowed allocation of the problem. Raises InputError where there is none."""
    return policy.decide(_by_class, problem, "greedy")


def _by_class(problem: AllocationProblem) -> dict[str, int]:
    """Every class may use what the higher ones left, less what the lower ones cannot do without."""
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
