"""HiGHS on the counts model, as `offcut allocate --solver milp` uses it."""

from __future__ import annotations

from dataclasses import replace

from offcut.allocate import milp
from offcut.model import AllocationProblem


def solve(problem: AllocationProblem, limit_s: float) -> tuple[float, float, bool]:
    """Milliseconds, objective, proven."""
    milp.solve(replace(problem, jobs=problem.jobs[:1]))  # load what a first call loads
    answer = milp.solve(problem, time_limit_s=limit_s)
    return answer.solve_ms, answer.objective, answer.proven
