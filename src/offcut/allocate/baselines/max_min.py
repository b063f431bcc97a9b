"""Max-min fairness of speed-up (Gavel, Narayanan et al., OSDI 2020), in whole nodes, one decision at a time."""

from __future__ import annotations

from dataclasses import replace

from offcut.allocate import exact
from offcut.model import AllocationProblem


def allocate(problem: AllocationProblem) -> dict[str, int]:
    """Maximise the smallest speed-up over weight, then the sum of them.

    Args:
        problem: what to decide.

    Returns:
        The node count of each job, by its id.
    """
    return exact.solve(replace(problem, objective="max_min")).nodes
