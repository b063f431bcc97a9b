"""The exact solver against the published optima, brute force, and its own promises."""

from __future__ import annotations

import gzip
import json
import random
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offcut.allocate import exact, json_format
from offcut.allocate.exact import counts
from offcut.allocate.objective import allocation_value, allowed_sizes, job_value
from offcut.errors import AllocationError
from offcut.model import AllocationProblem, JobRequest, QuotaGroup, ScalingCurve

pytestmark = pytest.mark.filterwarnings("error")


def close(a: float, b: float) -> bool:
    return abs(a - b) <= 1e-9 * max(1.0, abs(b))


def events(shared: Path) -> list[dict[str, Any]]:
    with gzip.open(shared / "allocation" / "published-milp-events.jsonl.gz", "rt") as lines:
        return [json.loads(line) for line in lines]


def data(shared: Path) -> Path:
    return shared / "data" if (shared / "data").is_dir() else shared


def test_all_published_events_give_the_recorded_optimum(shared: Path) -> None:
    recorded = events(data(shared))
    assert len(recorded) == 315
    for event in recorded:
        answer = exact.solve(json_format.load(event["problem"]))
        assert answer.proven
        assert answer.objective == pytest.approx(event["objective"], rel=1e-9)
        assert answer.bound == pytest.approx(answer.objective, rel=1e-9)


def test_the_published_side_constraint_as_sizes_gives_its_recorded_optimum(shared: Path) -> None:
    different = 0
    for event in events(data(shared)):
        half = (event["problem"]["nodes"] + 1) // 2
        for job in event["problem"]["jobs"]:
            top = min(job["max_nodes"], job["curve"]["nodes"][-1])
            job["sizes"] = [n for n in range(job["min_nodes"], top + 1) if abs(n - job["current"]) <= half]
            job["may_wait"] = job["current"] <= half
        answer = exact.solve(json_format.load(event["problem"]))
        assert answer.objective == pytest.approx(event["objective_with_side_constraint"], rel=1e-9)
        different += event["objective"] != pytest.approx(event["objective_with_side_constraint"], rel=1e-9)
    assert different > 0, "the side constraint binds in some events, or this shows nothing"


def agree(problem: AllocationProblem, every: list[tuple[float, tuple[int, ...]]], first_tie: Any) -> bool:
    """Check objective, proof, and the answer that the rule for ties demands. Return False if there is no answer."""
    if not every:
        with pytest.raises(AllocationError):
            exact.solve(problem)
        return False
    answer = exact.solve(problem)
    best, sizes = first_tie(problem, every)
    assert close(answer.objective, best), problem
    assert tuple(answer.nodes.values()) == sizes, problem
    assert answer.proven
    assert close(answer.bound, answer.objective)
    assert answer.bound >= answer.objective
    return True


@pytest.mark.parametrize("objective", ["weighted", "samples", "speedup", "deadline"])
def test_ten_thousand_random_problems_agree_with_brute_force(
    objective: str, random_problem: Any, everything: Any, first_tie: Any
) -> None:
    rng = random.Random(f"exact {objective}")
    solved = 0
    for _ in range(3500):
        p = random_problem(rng, objective)
        solved += agree(p, everything(p), first_tie)
    assert solved >= 2500


def test_the_search_in_blocks_agrees_with_brute_force(
    monkeypatch: pytest.MonkeyPatch, random_problem: Any, everything: Any, first_tie: Any
) -> None:
    monkeypatch.setattr(counts, "_AT_ONCE", 0)
    rng = random.Random("large")
    assert sum(agree(p, everything(p), first_tie) for p in (random_problem(rng) for _ in range(600))) >= 400


def medium(rng: random.Random) -> AllocationProblem:
    """Up to ten jobs on up to 400 nodes; long pieces, equal jobs, equal slopes, rigid sizes."""
    jobs: list[JobRequest] = []
    for i in range(rng.randint(2, 10)):
        if jobs and rng.random() < 0.4:
            jobs.append(replace(rng.choice(jobs), id=str(i), current=rng.choice([0, rng.randint(0, 120)])))
            continue
        points = sorted(rng.sample(range(1, 150), rng.randint(1, 6)))
        rates = [n * rng.choice([1.0, 1.0, 0.9, rng.uniform(0.5, 1.2)]) for n in points]
        top = points[-1]
        jobs.append(
            JobRequest(
                id=str(i),
                min_nodes=rng.randint(1, max(1, top // 4)),
                max_nodes=top,
                sizes=tuple(sorted(rng.sample(range(1, top + 1), min(top, 5)))) if rng.random() < 0.3 else None,
                curve=ScalingCurve(tuple(points), tuple(rates)),
                current=rng.choice([0, rng.randint(0, 120)]),
                grow_cost_s=rng.choice([0.0, 5.0, rng.uniform(0, 30)]),
                shrink_cost_s=rng.choice([0.0, 5.0, rng.uniform(0, 30)]),
            )
        )
    return AllocationProblem(
        nodes=rng.randint(1, 400), horizon_s=60.0, jobs=tuple(jobs), cost_model=rng.choice(["published", "stall"])
    )


def plain(p: AllocationProblem) -> float:
    """Return the optimum by the plain dynamic program over jobs and nodes."""
    best = np.zeros(p.nodes + 1)
    for one in p.jobs:
        after = np.full(p.nodes + 1, -np.inf)
        for n in allowed_sizes(one, p.nodes):
            after[n:] = np.maximum(after[n:], best[: p.nodes + 1 - n] + job_value(p, one, n))
        best = after
    return float(best.max())


@pytest.mark.parametrize("at_once", [2_000_000, 0])
def test_medium_problems_agree_with_a_plain_dynamic_program(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counts, "_AT_ONCE", at_once)
    rng = random.Random(f"medium {at_once}")
    for _ in range(250):
        p = medium(rng)
        answer = exact.solve(p)
        assert answer.proven
        assert answer.objective == pytest.approx(plain(p), rel=1e-9, abs=1e-9), p
        assert answer.objective == pytest.approx(allocation_value(p, answer.nodes), rel=1e-9, abs=1e-9)
        assert sum(answer.nodes.values()) <= p.nodes


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.data())
def test_more_nodes_never_lower_the_objective(data: st.DataObject) -> None:
    jobs = []
    for i in range(data.draw(st.integers(1, 6))):
        rates = data.draw(st.lists(st.floats(0, 100), min_size=1, max_size=8))
        current = data.draw(st.integers(0, 10))
        cost_s = data.draw(st.floats(0, 30))
        jobs.append(
            JobRequest(
                id=str(i),
                min_nodes=1,
                max_nodes=len(rates),
                curve=ScalingCurve(tuple(range(1, len(rates) + 1)), tuple(rates)),
                current=current,
                grow_cost_s=cost_s,
                shrink_cost_s=cost_s / 2,
            )
        )
    nodes = data.draw(st.integers(0, 30))
    few = AllocationProblem(nodes=nodes, horizon_s=60.0, jobs=tuple(jobs))
    a, b = exact.solve(few), exact.solve(replace(few, nodes=nodes + data.draw(st.integers(1, 5))))
    assert a.objective <= b.objective + 1e-9 * max(1.0, abs(b.objective))
    assert sum(a.nodes.values()) <= nodes
    assert close(allocation_value(few, a.nodes), a.objective)


def quota_met(p: AllocationProblem, sizes: tuple[int, ...], least: dict[str, int]) -> bool:
    for group in p.groups:
        used = sum(n for n, job in zip(sizes, p.jobs, strict=True) if job.group == group.id)
        if group.max_nodes is not None and used > group.max_nodes:
            return False
        if used < least.get(group.id, 0):
            return False
    return True


def entitled(p: AllocationProblem, everything: Any) -> dict[str, int]:
    """Return per group the fewest nodes with which its jobs make the best use of its entitlement, by brute force."""
    shares = sum(group.share or 0.0 for group in p.groups)
    least = {}
    for group in p.groups:
        if group.share is None:
            continue
        nodes = int(p.nodes * group.share / shares + 1e-9)
        nodes = nodes if group.max_nodes is None else min(nodes, group.max_nodes)
        jobs = tuple(job for job in p.jobs if job.group == group.id)
        alone = replace(p, groups=(), nodes=nodes, jobs=jobs) if jobs else None
        every = everything(alone) if alone else []
        if every:
            top = max(v for v, _ in every)
            least[group.id] = min(sum(s) for v, s in every if v >= top - 1e-11 * max(1.0, abs(top)))
    return least


@pytest.mark.parametrize("shares", [False, True])
def test_group_quotas_agree_with_brute_force(shares: bool, random_problem: Any, everything: Any) -> None:
    rng = random.Random(f"quotas {shares}")
    bound = 0
    for _ in range(1000):
        p = random_problem(rng)
        groups = tuple(
            QuotaGroup(
                id=g, max_nodes=rng.choice([None, rng.randint(0, 8)]), share=rng.choice([1.0, 2.0]) if shares else None
            )
            for g in "xy"
        )
        # From nothing, so that entitlements have no ties between fewer nodes and fewer resizes.
        jobs = tuple(replace(job, group=rng.choice(["x", "y", None]), current=0) for job in p.jobs)
        p = replace(p, groups=groups, jobs=jobs)
        least = entitled(p, everything) if shares else {}
        fitting = [(v, s) for v, s in everything(replace(p, groups=())) if quota_met(p, s, least)]
        if not fitting:
            with pytest.raises(AllocationError):
                exact.solve(p)
            continue
        answer = exact.solve(p)
        assert close(answer.objective, max(v for v, _ in fitting)), p
        assert quota_met(p, tuple(answer.nodes.values()), least), p
        bound += not quota_met(p, tuple(exact.solve(replace(p, groups=())).nodes.values()), least)
    assert bound >= 80, "quotas bind often enough to show something"


def test_max_min_agrees_with_brute_force(random_problem: Any, everything: Any) -> None:
    rng = random.Random("max_min")
    for _ in range(1500):
        p = random_problem(rng, "max_min")
        every = everything(p)
        if not every:
            continue
        answer = exact.solve(p)
        smallest = {sizes: allocation_value(p, dict(zip(answer.nodes, sizes, strict=True))) for _, sizes in every}
        top = max(smallest.values())
        assert close(answer.objective, top), p
        total = max(v for v, sizes in every if smallest[sizes] >= top - 1e-9 * max(1.0, abs(top)))
        mine = sum(job_value(p, job, answer.nodes[job.id]) for job in p.jobs)
        assert close(mine, total), p


def test_priority_classes_agree_with_brute_force(random_problem: Any, everything: Any) -> None:
    rng = random.Random("priority")
    for _ in range(1500):
        p = random_problem(rng, "priority")
        every = everything(p)
        if not every:
            continue
        answer = exact.solve(p)
        left = [sizes for _, sizes in every]
        for level in sorted({job.priority for job in p.jobs}, reverse=True):

            def worth(sizes: tuple[int, ...], p: AllocationProblem = p, level: int = level) -> float:
                return sum(job_value(p, j, n) for j, n in zip(p.jobs, sizes, strict=True) if j.priority == level)

            top = max(map(worth, left))
            left = [sizes for sizes in left if worth(sizes) >= top - 1e-9 * max(1.0, abs(top))]
            assert close(worth(tuple(answer.nodes.values())), top), p


def rigid(jobs: int, nodes: int) -> AllocationProblem:
    """Subset-sum in disguise: every job is worth its size, and has two sizes only."""
    rng = random.Random(7)
    made = []
    for i in range(jobs):
        a, b = sorted(rng.sample(range(20, 2000), 2))
        curve = ScalingCurve((a, b), (a + rng.random(), b + rng.random()))
        made.append(JobRequest(id=str(i), min_nodes=a, max_nodes=b, sizes=(a, b), curve=curve))
    return AllocationProblem(nodes=nodes, horizon_s=1.0, jobs=tuple(made))


def test_a_time_limit_gives_a_bound_that_is_not_called_proven(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counts, "_AT_ONCE", 0)
    p = rigid(60, 30_000)
    best = exact.solve(p)
    assert best.proven
    cut = exact.solve(p, time_limit_s=0.0)
    assert not cut.proven
    assert cut.objective <= best.objective <= cut.bound
    assert sum(cut.nodes.values()) <= 30_000
    assert close(allocation_value(p, cut.nodes), cut.objective)


def test_a_time_limit_is_kept() -> None:
    p = rigid(300, 150_000)
    exact.warm()
    started = time.perf_counter()
    answer = exact.solve(p, time_limit_s=0.2)
    assert time.perf_counter() - started < 20
    assert answer.bound >= answer.objective > 0


def test_equal_jobs_that_all_start_share_by_the_rule_for_ties() -> None:
    curve = ScalingCurve((1, 2, 4, 8), (1.0, 2.0, 4.0, 8.0))
    jobs = tuple(JobRequest(id=str(j), min_nodes=1, max_nodes=8, curve=curve) for j in range(100))
    answer = exact.solve(AllocationProblem(nodes=21, horizon_s=60.0, jobs=jobs))
    assert list(answer.nodes.values()) == [8, 8, 5] + [0] * 97


def test_no_nodes_and_no_jobs_have_answers() -> None:
    curve = ScalingCurve((1, 2), (1.0, 2.0))
    job = JobRequest(id="a", min_nodes=1, max_nodes=2, curve=curve, current=2, shrink_cost_s=3.0)
    none = exact.solve(AllocationProblem(nodes=0, horizon_s=10.0, jobs=(job,)))
    assert (none.nodes, none.objective, none.proven) == ({"a": 0}, -6.0, True)
    assert exact.solve(AllocationProblem(nodes=7, horizon_s=10.0, jobs=())).nodes == {}


def test_a_job_may_shrink_from_a_size_that_is_not_allowed() -> None:
    curve = ScalingCurve((1, 2, 4, 8), (1.0, 2.0, 4.0, 8.0))
    job = JobRequest(id="a", min_nodes=1, max_nodes=8, sizes=(2, 4), current=3, curve=curve, shrink_cost_s=5.0)
    answer = exact.solve(AllocationProblem(nodes=3, horizon_s=10.0, jobs=(job,)))
    assert answer.nodes == {"a": 2}
    assert answer.objective == pytest.approx(2 * 10 - 5 * 3)


def test_locked_jobs_and_jobs_in_their_minimum_run_time_stay() -> None:
    poor, rich = ScalingCurve((1, 4), (0.1, 0.4)), ScalingCurve((1, 4), (10.0, 40.0))
    jobs = (
        JobRequest(id="locked", min_nodes=1, max_nodes=4, current=3, locked=True, curve=poor),
        JobRequest(id="young", min_nodes=1, max_nodes=4, current=2, min_run_s=60.0, ran_s=10.0, curve=poor),
        JobRequest(id="old", min_nodes=1, max_nodes=4, current=2, min_run_s=60.0, ran_s=90.0, curve=poor),
        JobRequest(id="rich", min_nodes=1, max_nodes=4, curve=rich),
    )
    answer = exact.solve(AllocationProblem(nodes=8, horizon_s=60.0, jobs=jobs))
    assert answer.nodes == {"locked": 3, "young": 1, "old": 0, "rich": 4}
    with pytest.raises(AllocationError, match="need 4 nodes, but there are 3"):
        exact.solve(AllocationProblem(nodes=3, horizon_s=60.0, jobs=jobs))
    with pytest.raises(AllocationError, match="'locked' may not wait"):
        exact.solve(AllocationProblem(nodes=2, horizon_s=60.0, jobs=jobs))
