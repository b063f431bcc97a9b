"""Greedy marginal gain: each next node goes to the job whose rate gains most (Optimus, Peng et al., EuroSys 2018).

Optimus ranks jobs by how much one more worker shortens them; here the curves are known, and jobs are ranked by how much
one more node raises the objective's rate. The costs of resizes are ignored.
"""

from __future__ import annotations

import heapq

from offcut.allocate.objective import allowed_sizes, terms
from offcut.model import AllocationProblem


def allocate(problem: AllocationProblem) -> dict[str, int]:
    """Grow from the smallest sizes, always by the step with the largest gain per node that fits; ties to earlier jobs.

    Args:
        problem: what to decide.

    Returns:
        The node count of each job, by its id.
    """
    sizes = [list(allowed_sizes(job, problem.nodes)) for job in problem.jobs]
    seen = [terms(problem.objective, job) for job in problem.jobs]
    at = [0] * len(sizes)
    left = problem.nodes - sum(s[0] for s in sizes)

    def rate(j: int, i: int) -> float:
        curve = problem.jobs[j].curve
        return seen[j].weight * seen[j].counted(curve.rate_at(min(sizes[j][i], curve.max_nodes)))

    def step(j: int) -> tuple[float, int, int] | None:
        """Return the next step of job j: minus its gain per node, the job, and the index of the size reached."""
        i = at[j] + 1
        if i >= len(sizes[j]):
            return None
        return -(rate(j, i) - rate(j, at[j])) / (sizes[j][i] - sizes[j][at[j]]), j, i

    heap = [s for j in range(len(sizes)) if (s := step(j)) is not None]
    heapq.heapify(heap)
    while heap and left > 0:
        loss, j, i = heapq.heappop(heap)
        more = sizes[j][i] - sizes[j][at[j]]
        if loss >= 0 or more > left:
            continue
        at[j] = i
        left -= more
        if (following := step(j)) is not None:
            heapq.heappush(heap, following)
    return {job.id: sizes[j][at[j]] for j, job in enumerate(problem.jobs)}
