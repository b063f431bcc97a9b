"""Random small problems, and their optima by trying every allocation."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from offcut.allocate import value
from offcut.model import AllocationProblem, JobRequest, ScalingCurve


def _problem(rng: random.Random, objective: str = "weighted") -> AllocationProblem:
    """Up to four jobs on up to twelve nodes: curves of any shape, ties, equal jobs, locks, size lists."""
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


def _everything(problem: AllocationProblem) -> list[tuple[float, tuple[int, ...]]]:
    """The value and the sizes of every allocation that fits."""
    options = [list(value.allowed(job, problem.nodes)) for job in problem.jobs]
    worth = [{n: value.value(problem, job, n) for n in sizes} for job, sizes in zip(problem.jobs, options, strict=True)]
    return [
        (sum(w[n] for w, n in zip(worth, sizes, strict=True)), sizes)
        for sizes in itertools.product(*options)
        if sum(sizes) <= problem.nodes
    ]


def _first_tie(problem: AllocationProblem, every: list[tuple[float, tuple[int, ...]]]) -> tuple[float, tuple[int, ...]]:
    """The optimum by the rule for ties: fewest resizes, then earlier jobs keep more."""
    top = max(v for v, _ in every)
    ties = [sizes for v, sizes in every if v >= top - 1e-11 * max(1.0, abs(top))]

    def rank(sizes: tuple[int, ...]) -> tuple[int, tuple[int, ...]]:
        return sum(n != job.current for n, job in zip(sizes, problem.jobs, strict=True)), tuple(-n for n in sizes)

    return top, min(ties, key=rank)


@pytest.fixture(scope="session")
def random_problem() -> Callable[..., AllocationProblem]:
    return _problem


@pytest.fixture(scope="session")
def everything() -> Callable[[AllocationProblem], list[tuple[float, tuple[int, ...]]]]:
    return _everything


@pytest.fixture(scope="session")
def first_tie() -> Callable[..., tuple[float, tuple[int, ...]]]:
    return _first_tie
