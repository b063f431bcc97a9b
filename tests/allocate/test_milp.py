"""The general form: each row with an optimum that can be checked by hand, and agreement with the exact solver."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from offcut.allocate import exact, milp
from offcut.errors import AllocationError
from offcut.model import Allocation, AllocationProblem, JobRequest, NodeClass, QuotaGroup, ScalingCurve


def line(per_node: float, top: int) -> ScalingCurve:
    """Return a curve that scales perfectly."""
    return ScalingCurve((top,), (per_node * top,))


def job(name: str, per_node: float = 1.0, top: int = 4, **more: Any) -> JobRequest:
    return JobRequest(id=name, min_nodes=1, max_nodes=top, curve=line(per_node, top), **more)


def solve(jobs: tuple[JobRequest, ...], classes: tuple[NodeClass, ...], **more: Any) -> Allocation:
    nodes = sum(one.nodes for one in classes)
    answer = milp.solve(AllocationProblem(nodes=nodes, horizon_s=100.0, jobs=jobs, classes=classes, **more))
    assert answer.proven
    for one in classes:
        assert sum(of_job.get(one.id, 0) for of_job in answer.classes.values()) <= one.nodes
    return answer


TYPES = (NodeClass(id="fast", nodes=4, type="fast"), NodeClass(id="slow", nodes=8, type="slow"))


def test_each_job_gets_the_node_type_on_which_it_gains_most() -> None:
    picky = job("picky", 1.0, 8, type_curves=(("fast", line(3.0, 4)),))
    plain = job("plain", 1.0, 8)
    answer = solve((plain, picky), TYPES)
    assert answer.classes == {"plain": {"slow": 8}, "picky": {"fast": 4}}
    assert answer.objective == pytest.approx((8 + 4 * 3) * 100)


def test_types_mix_only_where_the_job_allows_it() -> None:
    alone = job("a", 1.0, 12, type_curves=(("fast", line(3.0, 4)), ("slow", line(1.0, 8))))
    assert solve((alone,), TYPES).objective == pytest.approx(4 * 3 * 100)
    mixed = solve((replace(alone, mix_types=True),), TYPES)
    assert mixed.nodes == {"a": 12}
    assert mixed.objective == pytest.approx((4 * 3 + 8) * 100)


SWITCHES = (NodeClass(id="s1", nodes=3, switch="1"), NodeClass(id="s2", nodes=3, switch="2"))


def test_a_job_spreads_over_switches_only_for_the_price() -> None:
    dear = solve((job("a", 1.0, 6, switch_price=301.0),), SWITCHES)
    assert dear.nodes == {"a": 3}
    assert dear.objective == pytest.approx(300)
    cheap = solve((job("a", 1.0, 6, switch_price=299.0),), SWITCHES)
    assert cheap.nodes == {"a": 6}
    assert cheap.objective == pytest.approx(600 - 299)


def test_jobs_keep_to_one_switch_each() -> None:
    answer = solve((job("a", 1.0, 3, switch_price=1.0), job("b", 1.0, 3, switch_price=1.0)), SWITCHES)
    assert sorted(map(tuple, answer.classes.values())) == [("s1",), ("s2",)]
    assert answer.objective == pytest.approx(600)


def test_a_known_end_of_window_counts_until_then_and_costs_the_stall() -> None:
    classes = (NodeClass(id="soon", nodes=2, until_s=10.0), NodeClass(id="long", nodes=2))
    # All four: 4 x 10 s, then a stall of 5 s at 2, then 2 x 85 s.
    cheap = solve((job("a", shrink_cost_s=5.0),), classes)
    assert cheap.nodes == {"a": 4}
    assert cheap.objective == pytest.approx(4 * 10 + 2 * 90 - 2 * 5)
    # The stall would cost more than the two nodes bring in their 10 s.
    dear = solve((job("a", shrink_cost_s=15.0),), classes)
    assert dear.classes == {"a": {"long": 2}}
    assert dear.objective == pytest.approx(2 * 100)


def test_nodes_that_leave_together_go_to_one_job() -> None:
    classes = (NodeClass(id="soon", nodes=2, until_s=50.0), NodeClass(id="long", nodes=2))
    answer = solve((job("a", top=2, shrink_cost_s=5.0), job("b", top=2, shrink_cost_s=5.0)), classes)
    assert sorted(map(tuple, answer.classes.values())) == [("long",), ("soon",)]
    assert answer.objective == pytest.approx(2 * 100 + 2 * 50)


def test_migration_is_forbidden_or_paid_for() -> None:
    classes = (NodeClass(id="own", nodes=2, type="slow", held_by="a"), NodeClass(id="new", nodes=2, type="fast"))
    held = job("a", top=2, current=2, type_curves=(("fast", line(3.0, 2)),))
    stays = solve((held,), classes)
    assert stays.classes == {"a": {"own": 2}}
    assert stays.objective == pytest.approx(200)
    moves = solve((replace(held, migration_cost_s=50.0),), classes)
    assert moves.classes == {"a": {"new": 2}}
    assert moves.objective == pytest.approx(600 - 50 * 2)
    too_dear = solve((replace(held, migration_cost_s=201.0),), classes)
    assert too_dear.classes == {"a": {"own": 2}}


def test_a_job_that_grows_keeps_its_own_nodes() -> None:
    classes = (NodeClass(id="own", nodes=1, held_by="a"), NodeClass(id="new", nodes=3))
    answer = solve((job("a", top=3, current=1),), classes)
    assert answer.classes == {"a": {"own": 1, "new": 2}}


def test_at_most_k_jobs_change() -> None:
    jobs = tuple(job(name, top=3, current=1) for name in "abc")
    problem = AllocationProblem(nodes=9, horizon_s=100.0, jobs=jobs)
    for k, best in ((0, 3), (1, 5), (2, 7), (3, 9)):
        answer = milp.solve(replace(problem, max_resizes=k))
        assert answer.objective == pytest.approx(100 * best)
        assert sum(n != 1 for n in answer.nodes.values()) == k


def test_at_most_k_jobs_change_counts_migrations() -> None:
    classes = tuple(NodeClass(id=f"own {j}", nodes=1, type="slow", held_by=j) for j in "ab")
    classes += (NodeClass(id="new", nodes=2, type="fast"),)
    jobs = tuple(job(j, top=1, current=1, migration_cost_s=1.0, type_curves=(("fast", line(3.0, 1)),)) for j in "ab")
    assert solve(jobs, classes).objective == pytest.approx(2 * (300 - 1))
    assert solve(jobs, classes, max_resizes=1).objective == pytest.approx(300 - 1 + 100)


def test_a_start_avoids_nodes_that_leave_before_the_minimum_run_time() -> None:
    classes = (NodeClass(id="soon", nodes=3, until_s=40.0), NodeClass(id="long", nodes=1))
    assert solve((job("a"),), classes).nodes == {"a": 4}
    assert solve((job("a", min_run_s=60.0),), classes).classes == {"a": {"long": 1}}


def test_a_job_in_its_minimum_run_time_is_not_stopped() -> None:
    young = job("young", 0.1, 2, current=1, min_run_s=60.0, ran_s=10.0)
    rich = job("rich", 10.0, 4)
    for problem_solve in (milp.solve, exact.solve):
        answer = problem_solve(AllocationProblem(nodes=3, horizon_s=100.0, jobs=(young, rich)))
        assert answer.nodes == {"young": 1, "rich": 2}


QUOTA = (job("a", 3.0, 6, group="x"), job("b", 2.0, 6, group="x"), job("c", 1.0, 6, group="y"))


@pytest.mark.parametrize("solver", [exact.solve, milp.solve])
def test_a_group_quota_holds(solver: Any) -> None:
    groups = (QuotaGroup(id="x", max_nodes=4), QuotaGroup(id="y"))
    answer = solver(AllocationProblem(nodes=8, horizon_s=100.0, jobs=QUOTA, groups=groups))
    assert answer.nodes == {"a": 4, "b": 0, "c": 4}
    assert answer.objective == pytest.approx(100 * (4 * 3 + 4))


@pytest.mark.parametrize("solver", [exact.solve, milp.solve])
def test_a_group_gets_its_fair_share_or_what_it_can_use_of_it(solver: Any) -> None:
    groups = (QuotaGroup(id="x", share=3.0), QuotaGroup(id="y", share=1.0))
    problem = AllocationProblem(nodes=8, horizon_s=100.0, jobs=QUOTA, groups=groups)
    assert solver(problem).nodes == {"a": 6, "b": 0, "c": 2}
    small = replace(QUOTA[2], max_nodes=1)
    assert solver(replace(problem, jobs=(*QUOTA[:2], small))).nodes == {"a": 6, "b": 1, "c": 1}


@pytest.mark.parametrize("objective", ["weighted", "samples", "speedup", "deadline", "max_min", "priority"])
def test_counts_and_classes_agree_with_the_exact_solver(objective: str, random_problem: Any) -> None:
    rng = random.Random(f"milp {objective}")
    compared = 0
    for _ in range(120):
        p: AllocationProblem = random_problem(rng, objective)
        if objective == "weighted" and rng.random() < 0.5:
            groups = (
                QuotaGroup(id="x", max_nodes=rng.randint(1, 9)),
                QuotaGroup(id="y", share=rng.choice([None, 2.0])),
            )
            p = replace(p, groups=groups, jobs=tuple(replace(j, group=rng.choice("xy")) for j in p.jobs))
        forms = [p]
        held = sum(j.current for j in p.jobs)
        if held <= p.nodes:  # the same said with classes: no choice of node matters
            classes = [NodeClass(id=f"of {j.id}", nodes=j.current, held_by=j.id) for j in p.jobs if j.current]
            forms.append(replace(p, classes=(*classes, NodeClass(id="free", nodes=p.nodes - held))))
        try:
            best = exact.solve(p)
        except AllocationError:
            for form in forms:
                with pytest.raises(AllocationError):
                    milp.solve(form)
            continue
        for form in forms:
            answer = milp.solve(form)
            assert answer.objective == pytest.approx(best.objective, rel=1e-6, abs=1e-6), form
            compared += 1
    assert compared >= 100


def test_a_time_limit_without_an_answer_is_reported() -> None:
    rng = random.Random(3)
    jobs = []
    for i in range(60):
        points = sorted(rng.sample(range(1, 400), 8))
        curve = ScalingCurve(tuple(points), tuple(rng.random() * n for n in points))
        jobs.append(JobRequest(id=str(i), min_nodes=1, max_nodes=400, curve=curve, current=rng.randint(0, 50)))
    p = AllocationProblem(nodes=1000, horizon_s=100.0, jobs=tuple(jobs))
    with pytest.raises(AllocationError, match="in time"):
        milp.solve(p, time_limit_s=0.0)
    best = exact.solve(p)
    done = milp.solve(p, time_limit_s=60.0)
    assert done.objective <= best.objective * (1 + 1e-9)
    assert done.bound >= best.objective * (1 - 1e-9)


def test_the_exact_solver_refuses_problems_that_it_cannot_express() -> None:
    with pytest.raises(AllocationError, match="milp"):
        exact.solve(AllocationProblem(nodes=4, horizon_s=100.0, jobs=(job("a"),), max_resizes=1))
