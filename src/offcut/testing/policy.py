"""What `offcut.allocate.policy.Policy` promises, as tests that any policy can be put through."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from offcut.allocate import exact, policy
from offcut.allocate.objective import allocation_value
from offcut.errors import AllocationError
from offcut.model import AllocationProblem, JobRequest, ScalingCurve
from offcut.model.allocation import Objective


class PolicyConformance:
    """The promises of `offcut.allocate.policy.Policy`.

    Inherit, and define the fixture `rule`::

        class TestSmallestFirst(PolicyConformance):
            @pytest.fixture
            def rule(self) -> Policy:
                return my_policy.allocate
    """

    #: How many random problems a policy is asked.
    problems: int = 300
    #: The seed of these problems.
    seed: int | str = 0

    @pytest.fixture
    def rule(self) -> policy.Policy:
        """Return the policy under test."""
        raise NotImplementedError(f"{type(self).__name__} has to define the fixture 'rule'")

    def test_answers_are_legal_repeatable_and_never_above_the_optimum(self, rule: policy.Policy) -> None:
        rng = random.Random(self.seed)
        answered = 0
        for _ in range(self.problems):
            problem = random_problem(rng)
            try:
                best = exact.solve(problem)
            except AllocationError:  # no allocation satisfies this problem
                continue
            given = policy.decide(rule, problem)
            assert given.objective <= best.objective + 1e-9 * max(1.0, abs(best.objective))
            assert given.objective == pytest.approx(allocation_value(problem, given.nodes))
            assert given.nodes == policy.decide(rule, problem).nodes
            answered += 1
        assert answered >= self.problems * 2 // 3


def random_problem(rng: random.Random, objective: Objective = "weighted") -> AllocationProblem:
    """Return a random small problem: up to four jobs on up to twelve nodes, with ties, equal jobs, locks, size lists.

    Args:
        rng: where the randomness comes from; the same state gives the same problem.
        objective: the problem's objective.
    """
    jobs: list[JobRequest] = []
    for i in range(rng.randint(1, 4)):
        if jobs and rng.random() < 0.3:
            jobs.append(replace(jobs[-1], id=str(i), current=rng.choice([jobs[-1].current, rng.randint(0, 13)])))
            continue
        points = sorted(rng.sample(range(1, 14), rng.randint(1, 4)))
        whole = rng.random() < 0.6
        curve = ScalingCurve(
            tuple(points), tuple(float(rng.randint(0, 6)) if whole else 5 * rng.random() for _ in points)
        )
        top = curve.max_nodes
        smallest = rng.randint(1, top)
        jobs.append(
            JobRequest(
                id=str(i),
                min_nodes=smallest,
                max_nodes=rng.randint(smallest, 15),
                curve=curve,
                sizes=tuple(sorted(rng.sample(range(1, top + 1), rng.randint(1, min(top, 4)))))
                if rng.random() < 0.4
                else None,
                current=rng.choice([0, rng.randint(0, 13)]),
                weight=rng.choice([1.0, 1.0, 2.0, 0.5, 0.0]),
                grow_cost_s=rng.choice([0.0, 1.0, float(rng.randint(0, 20))]),
                shrink_cost_s=rng.choice([0.0, 1.0, float(rng.randint(0, 20))]),
                priority=rng.randint(0, 2),
                locked=rng.random() < 0.05,
                may_wait=rng.random() > 0.1,
                min_run_s=rng.choice([0.0, 0.0, 0.0, 5.0]),
                samples_left=rng.choice([None, 10.0, 50.0]),
                deadline_s=rng.choice([None, 10.0, 20.0]),
            )
        )
    return AllocationProblem(
        nodes=rng.randint(0, 12),
        horizon_s=rng.choice([1.0, 10.0, 60.0]),
        jobs=tuple(jobs),
        cost_model=rng.choice(["published", "stall"]),
        objective=objective,
    )
