"""The choice of the solver that answers a problem."""

from __future__ import annotations

from dataclasses import replace

import pytest

from offcut.allocate import exact, milp, policy
from offcut.allocate.solve import solve
from offcut.errors import AllocationError, InputError
from offcut.model import AllocationProblem, JobRequest, ScalingCurve

CURVE = ScalingCurve((1, 2, 4), (1.0, 1.9, 3.5))
PROBLEM = AllocationProblem(
    nodes=5,
    horizon_s=60.0,
    jobs=tuple(JobRequest(id=i, min_nodes=1, max_nodes=4, curve=CURVE, grow_cost_s=3.0) for i in "ab"),
)


def test_the_exact_solver_answers_problems_that_counts_can_express() -> None:
    answer, expected = solve(PROBLEM), exact.solve(PROBLEM)
    assert (answer.nodes, answer.price) == (expected.nodes, expected.price)
    assert answer.price > 0  # the other solver has no price


def test_highs_answers_problems_that_counts_cannot_express() -> None:
    one_change = replace(PROBLEM, max_resizes=1)
    with pytest.raises(AllocationError, match="beyond the exact solver"):
        solve(one_change, solver="exact")
    answer = solve(one_change)
    assert answer.objective == pytest.approx(milp.solve(one_change).objective)
    assert sorted(answer.nodes.values()) == [0, 4]


def test_highs_answers_when_it_is_named() -> None:
    answer = solve(PROBLEM, solver="milp")
    assert answer.objective == pytest.approx(exact.solve(PROBLEM).objective)
    assert answer.price == 0


def test_a_policy_answers_in_place_of_a_solver_and_is_checked() -> None:
    first_come = policy.load("first-come")
    answer = solve(replace(PROBLEM, max_resizes=1), policy=first_come, policy_name="first-come")
    assert answer.nodes == {"a": 4, "b": 1}
    assert not answer.proven
    with pytest.raises(InputError, match="my policy: job 'a' got 9 nodes"):
        solve(PROBLEM, policy=lambda _: {"a": 9}, policy_name="my policy")
