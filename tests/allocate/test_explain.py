"""Explanations: every cause by a case made for it, and the numbers against the definition of value."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from offcut.allocate import exact, policy
from offcut.allocate.explain import explain
from offcut.allocate.objective import job_value
from offcut.errors import AllocationError, InputError
from offcut.model import AllocationProblem, JobRequest, NodeClass, QuotaGroup, ScalingCurve

STEEP = ScalingCurve((1, 8), (10.0, 80.0))
FLAT = ScalingCurve((1, 2, 8), (11.0, 12.0, 12.0))


def job(name: str, curve: ScalingCurve = STEEP, **more: Any) -> JobRequest:
    return JobRequest(**{"id": name, "min_nodes": 1, "max_nodes": 8, "curve": curve} | more)


def problem(nodes: int, *jobs: JobRequest, **more: Any) -> AllocationProblem:
    return AllocationProblem(**{"nodes": nodes, "horizon_s": 60.0, "jobs": jobs} | more)


@pytest.mark.parametrize(
    ("asked", "cause", "said"),
    [
        (problem(9, job("a")), "bound", "8 is its largest size"),
        (problem(4, job("a")), "nodes", "does not fit on 4 nodes"),
        (problem(8, job("a", current=2, locked=True)), "locked", "locked"),
        (problem(8, job("a", FLAT, current=2)), "curve", "not make it faster"),
        (problem(4, job("a", current=2, grow_cost_s=120.0)), "resize", "costs 120 s, more than any size gains in 60 s"),
        (problem(8, job("a", FLAT), job("b")), "others", "the nodes are worth more to others"),
        (problem(8, job("a", group="x"), groups=(QuotaGroup(id="x", max_nodes=3),)), "quota", "quota of its group 'x'"),
        (problem(8, job("a", current=2), job("b", current=6, locked=True)), "constraint", "leave no allocation"),
        (problem(4, job("a", current=2), job("b", current=2)), "tie", "no better (b 2 → 1)"),
        (problem(8, job("a", priority=0), job("b", priority=1), objective="priority"), "others", "others come first"),
        (problem(8, job("a"), job("b"), objective="max_min"), "others", "lower the smallest speed-up"),
    ],
)
def test_each_cause_is_found_and_explained(asked: AllocationProblem, cause: str, said: str) -> None:
    found = explain(asked, "a")
    assert found.cause == cause
    assert said in found.words[-1]
    assert json.loads(json.dumps(found.as_json()))["nodes"] == found.nodes


def test_the_loss_of_the_others_is_exact() -> None:
    found = explain(problem(8, job("a", FLAT), job("b")), "a")
    assert (found.nodes, found.larger, found.smaller) == (1, 2, 0)
    assert found.gain == pytest.approx(60 * 1)
    assert found.loss == pytest.approx(60 * 11)
    assert found.others_lose == pytest.approx(60 * 10)
    assert found.others == {"b": (7, 6)}
    assert found.price == pytest.approx(60 * 10)


def test_the_explanation_says_when_a_policy_leaves_useful_nodes_idle() -> None:
    p = problem(8, job("a"), job("b"))
    found = explain(p, "b", policy.decide(lambda _: {"a": 2}, p))
    assert found.cause == "policy"
    assert "the policy did not do that" in found.words[-1]


def test_the_general_form_is_explained_too() -> None:
    p = problem(8, job("a", current=4), job("b", current=4), max_resizes=0)
    assert explain(p, "a").cause == "constraint"
    p = problem(4, job("a"), classes=(NodeClass(id="c", nodes=4),))
    assert explain(p, "a").nodes == 4


def test_an_unknown_job_is_reported() -> None:
    with pytest.raises(InputError, match="unknown job 'z'"):
        explain(problem(4, job("a")), "z")


@pytest.mark.parametrize("objective", ["weighted", "speedup", "deadline"])
def test_no_optimal_allocation_is_called_improvable(objective: str, random_problem: Any) -> None:
    rng = random.Random(objective)
    explained = 0
    for _ in range(150):
        p = random_problem(rng, objective)
        try:
            best = exact.solve(p)
        except AllocationError:
            continue
        for one in p.jobs:
            found = explain(p, one.id, best)
            assert found.cause != "policy", p
            assert found.worth == pytest.approx(job_value(p, one, best.nodes[one.id]))
            if found.cause == "others" and found.others_lose is not None and found.target_gain is not None:
                assert found.others_lose >= found.target_gain - 1e-9 * max(1.0, abs(best.objective))
            explained += 1
    assert explained >= 200
