"""HiGHS on the counts model: what `offcut allocate --solver milp` does."""

from __future__ import annotations

from offcut.allocate import milp
from offcut.model import AllocationProblem


def solve(problem: AllocationProblem, limit_s: float) -> tuple[float, float, bool]:
    """Milliseconds, objective, proven."""
    answer = milp.solve(problem, time_limit_s=limit_s)
    return answer.solve_ms, answer.objective, answer.proven
