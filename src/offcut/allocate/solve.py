"""Which solver, or which policy, answers an allocation problem."""

from __future__ import annotations

from typing import Literal

from offcut.allocate import exact, milp
from offcut.allocate.policy import Policy, decide
from offcut.model import Allocation, AllocationProblem

SolverName = Literal["exact", "milp"]


def solve(
    problem: AllocationProblem,
    *,
    solver: SolverName | None = None,
    policy: Policy | None = None,
    policy_name: str = "policy",
    time_limit_s: float | None = None,
) -> Allocation:
    """Answer an allocation problem: by the policy if one is given, else by a solver.

    Args:
        problem: what to decide.
        solver: `exact`, or `milp` (HiGHS); None: `exact` wherever counts can express the problem.
        policy: decides in place of a solver (see `offcut.allocate.policy.load`).
        policy_name: what messages call the policy.
        time_limit_s: seconds after which a solver stops with the best answer so far; None: no limit. A policy takes as
            long as it takes.

    Returns:
        The allocation. A policy's is never `proven`, and its bound is infinite.

    Raises:
        AllocationError: no allocation meets the problem, or the solver that was named cannot express it.
        InputError: the policy failed, or its answer is not an allocation of the problem.
    """
    if policy is not None:
        return decide(policy, problem, policy_name)
    if solver == "milp" or (solver is None and problem.needs_milp):
        return milp.solve(problem, time_limit_s=time_limit_s)
    return exact.solve(problem, time_limit_s=time_limit_s)
