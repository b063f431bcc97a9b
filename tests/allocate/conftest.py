"""Random small problems, and their optima by trying every allocation."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from offcut.allocate.objective import allowed_sizes, job_value
from offcut.model import AllocationProblem
from offcut.testing.policy import random_problem as draw_problem


def _everything(problem: AllocationProblem) -> list[tuple[float, tuple[int, ...]]]:
    """Return the value and the sizes of every allocation that fits."""
    options = [list(allowed_sizes(job, problem.nodes)) for job in problem.jobs]
    worth = [{n: job_value(problem, job, n) for n in sizes} for job, sizes in zip(problem.jobs, options, strict=True)]
    return [
        (sum(w[n] for w, n in zip(worth, sizes, strict=True)), sizes)
        for sizes in itertools.product(*options)
        if sum(sizes) <= problem.nodes
    ]


def _first_tie(problem: AllocationProblem, every: list[tuple[float, tuple[int, ...]]]) -> tuple[float, tuple[int, ...]]:
    """Return the optimum by the rule for ties: fewest resizes, then earlier jobs have more."""
    top = max(v for v, _ in every)
    ties = [sizes for v, sizes in every if v >= top - 1e-11 * max(1.0, abs(top))]

    def rank(sizes: tuple[int, ...]) -> tuple[int, tuple[int, ...]]:
        return sum(n != job.current for n, job in zip(sizes, problem.jobs, strict=True)), tuple(-n for n in sizes)

    return top, min(ties, key=rank)


@pytest.fixture(scope="session")
def random_problem() -> Callable[..., AllocationProblem]:
    return draw_problem


@pytest.fixture(scope="session")
def everything() -> Callable[[AllocationProblem], list[tuple[float, tuple[int, ...]]]]:
    return _everything


@pytest.fixture(scope="session")
def first_tie() -> Callable[..., tuple[float, tuple[int, ...]]]:
    return _first_tie
