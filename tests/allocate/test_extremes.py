"""The exact solver ends on any input, and reports values that overflow."""

from __future__ import annotations

import math

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings

from offcut.allocate.exact import solve
from offcut.allocate.objective import allowed_sizes
from offcut.errors import AllocationError
from offcut.model import AllocationProblem, JobRequest, ScalingCurve
from offcut.wire.jobspec import JobSpec

#: What a job may say (`wire.jobspec`), at and between its limits.
WEIGHTS = st.sampled_from([1e-6, 1e-3, 1.0, 7.3, 1e3, 1e6]) | st.floats(1e-6, 1e6)
RATES = st.sampled_from([0.0, 1e-6, 1.0, 1e12]) | st.floats(1e-6, 1e12)
COSTS_S = st.sampled_from([0.0, 1e-9, 120.0, 1e6]) | st.floats(0, 1e6)


@st.composite
def requests(draw: st.DrawFn, job_id: str, weights: st.SearchStrategy[float], rates: st.SearchStrategy[float]):
    points = sorted(draw(st.sets(st.integers(1, 300), min_size=1, max_size=5)))
    curve = ScalingCurve(tuple(points), tuple(draw(rates) for _ in points))
    smallest = draw(st.integers(1, curve.max_nodes))
    # As the controller makes it: rates in units of the job's own at its smallest size.
    unit = curve.rate_at(smallest) or 1.0
    return JobRequest(
        id=job_id,
        min_nodes=smallest,
        max_nodes=draw(st.integers(smallest, 400)),
        sizes=draw(st.none() | st.sets(st.integers(1, 300), min_size=1, max_size=6).map(lambda s: tuple(sorted(s)))),
        current=draw(st.integers(0, 300)),
        curve=curve,
        weight=draw(weights) / unit,
        grow_cost_s=draw(COSTS_S),
        shrink_cost_s=draw(COSTS_S),
        priority=draw(st.integers(0, 2)),
    )


@st.composite
def problems(draw: st.DrawFn, weights: st.SearchStrategy[float], rates: st.SearchStrategy[float]) -> AllocationProblem:
    count = draw(st.integers(1, 6))
    return AllocationProblem(
        nodes=draw(st.integers(0, 600)),
        horizon_s=draw(st.sampled_from([1e-3, 120.0, 1e6])),
        jobs=tuple(draw(requests(str(i), weights, rates)) for i in range(count)),
        cost_model=draw(st.sampled_from(["published", "stall"])),
        objective=draw(st.sampled_from(["weighted", "priority", "max_min", "speedup"])),
    )


def assert_allowed(problem: AllocationProblem, nodes: dict[str, int]) -> None:
    assert sum(nodes.values()) <= problem.nodes
    for job in problem.jobs:
        assert nodes[job.id] in set(allowed_sizes(job, problem.nodes))


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(problems(WEIGHTS, RATES))
def test_every_job_that_may_be_submitted_gets_an_answer(problem: AllocationProblem) -> None:
    answer = solve(problem, time_limit_s=5.0)
    assert_allowed(problem, answer.nodes)
    assert math.isfinite(answer.objective)


ANYTHING = st.floats(0, allow_nan=False) | st.sampled_from([1e308, 5e-324, 1e-300])


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(problems(ANYTHING, ANYTHING.filter(math.isfinite)))
def test_numbers_of_any_size_are_answered_or_refused(problem: AllocationProblem) -> None:
    try:
        answer = solve(problem, time_limit_s=5.0)
    except AllocationError:
        return
    assert_allowed(problem, answer.nodes)


def test_a_weight_that_overflows_is_refused_with_a_sentence() -> None:
    curve = ScalingCurve((1, 8), (1e-10, 1.0))
    jobs = (
        JobRequest(id="a", min_nodes=1, max_nodes=8, curve=curve, weight=math.inf),
        JobRequest(id="b", min_nodes=1, max_nodes=8, curve=curve),
    )
    with pytest.raises(AllocationError, match="too large or too small to be compared"):
        solve(AllocationProblem(nodes=8, horizon_s=120.0, jobs=jobs, cost_model="stall"), time_limit_s=5.0)


@pytest.mark.parametrize(
    "fields",
    [
        {"weight": 1e308},
        {"weight": 1e-300},
        {"curve": {"nodes": [1, 8], "rate": [1e-10, 1.0]}},
        {"curve": {"nodes": [1, 8], "rate": [1.0, 1e300]}},
        {"grow_cost_s": 1e300},
    ],
)
def test_numbers_out_of_range_are_refused(fields: dict) -> None:
    with pytest.raises(ValueError, match=r"must be 0, or from|less than or equal|greater than or equal"):
        JobSpec(name="a", command=["a"], **fields)
