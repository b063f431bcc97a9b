"""Policies: every baseline by a case that can be checked by hand, and what happens to bad ones."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from offcut.allocate import policy
from offcut.errors import InputError
from offcut.model import AllocationProblem, JobRequest, QuotaGroup, ScalingCurve

STEEP = ScalingCurve((1, 2, 4, 8), (10.0, 20.0, 40.0, 80.0))
FLAT = ScalingCurve((1, 2, 4, 8), (10.0, 15.0, 20.0, 21.0))


def job(name: str, curve: ScalingCurve = STEEP, **more: Any) -> JobRequest:
    return JobRequest(**{"id": name, "min_nodes": 1, "max_nodes": 8, "curve": curve} | more)


def ask(name: str, nodes: int, *jobs: JobRequest, **more: Any) -> dict[str, int]:
    problem = AllocationProblem(nodes=nodes, horizon_s=60.0, jobs=jobs, **more)
    return policy.decide(policy.load(name), problem, name).nodes


def test_equal_share_passes_on_nodes_that_a_job_cannot_use() -> None:
    assert ask("equal-share", 9, job("a"), job("b", max_nodes=2), job("c")) == {"a": 4, "b": 2, "c": 3}
    assert ask("equal-share", 2, job("a"), job("b"), job("c")) == {"a": 1, "b": 1, "c": 0}


def test_equal_share_as_published_has_its_off_by_one() -> None:
    jobs = (job("a"), job("b", max_nodes=2), job("c", min_nodes=3))
    assert ask("equal-share-published", 9, *jobs) == {"a": 3, "b": 2, "c": 0}
    assert ask("equal-share-published", 12, *jobs) == {"a": 4, "b": 2, "c": 4}


def test_first_come_serves_earlier_jobs_with_their_largest_size() -> None:
    assert ask("first-come", 11, job("a"), job("b"), job("c")) == {"a": 8, "b": 3, "c": 0}
    assert ask("first-come", 8, job("a"), job("b", may_wait=False)) == {"a": 7, "b": 1}


def test_greedy_gives_each_node_where_it_gains_most() -> None:
    assert ask("greedy", 6, job("flat", FLAT), job("steep")) == {"flat": 1, "steep": 5}
    assert ask("greedy", 10, job("flat", FLAT), job("steep")) == {"flat": 2, "steep": 8}


def test_static_jobs_run_at_one_size_or_wait() -> None:
    # FLAT keeps 75 % of its rate per node at 2 nodes, 50 % at 4; STEEP all of it at 8.
    assert ask("static", 10, job("flat", FLAT), job("steep"), job("late")) == {"flat": 2, "steep": 8, "late": 0}
    assert ask("static", 9, job("early"), job("running", current=8)) == {"early": 0, "running": 8}


def test_pollux_maximises_its_power_mean() -> None:
    jobs = (job("a", FLAT, current=2, grow_cost_s=12.0, shrink_cost_s=6.0), job("b", FLAT, current=3), job("c", STEEP))
    problem = AllocationProblem(nodes=9, horizon_s=60.0, jobs=jobs)

    def fitness(sizes: dict[str, int]) -> float:
        """Pollux, equations 13 to 15 with p = -1, a job without nodes counted as a speed-up of 0.01."""
        total = 0.0
        for j in jobs:
            n = sizes[j.id]
            cost_s = 0.0 if n == j.current else j.grow_cost_s if n > j.current else j.shrink_cost_s
            total += 1 / max(0.01, (1 - cost_s / 60) * j.curve.rate_at(n) / j.curve.rate_at(3))
        return len(jobs) / total

    best = max(
        fitness({"a": a, "b": b, "c": c}) for a in range(9) for b in range(9) for c in range(9) if a + b + c <= 9
    )
    answer = policy.decide(policy.load("pollux"), problem)
    assert fitness(answer.nodes) == pytest.approx(best)


def test_max_min_is_fair() -> None:
    assert ask("max-min", 5, job("flat", FLAT), job("steep")) == {"flat": 3, "steep": 2}


def write(tmp_path: Path, text: str) -> str:
    path = tmp_path / "mine.py"
    path.write_text(text)
    return str(path)


def test_a_policy_is_loaded_from_a_users_file(tmp_path: Path) -> None:
    path = write(
        tmp_path, "def allocate(problem):\n    return {problem.jobs[-1].id: 2}\n\ndef none(problem):\n    return {}\n"
    )
    assert ask(path, 5, job("a"), job("b")) == {"a": 0, "b": 2}
    assert ask(f"{path}:none", 5, job("a"), job("b")) == {"a": 0, "b": 0}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = (", "SyntaxError"),
        ("import nothing_of_this_name", "ModuleNotFoundError"),
        ("allocate = 3", "no function 'allocate'"),
    ],
)
def test_a_file_without_a_policy_is_reported(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        policy.load(write(tmp_path, text))


@pytest.mark.parametrize("name", ["nonsense", "missing.py", "missing.py:allocate"])
def test_an_unknown_policy_is_reported(name: str) -> None:
    with pytest.raises(InputError):
        policy.load(name)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("return {'a': 99}", "job 'a' got 99 nodes"),
        ("return {'a': 2.0}", "job 'a' got 2.0 nodes"),
        ("return {'a': 8, 'b': 8}", "it gave 16 of 9 nodes"),
        ("return {'z': 1}", "unknown job 'z'"),
        ("return None", "TypeError"),
        ("raise ValueError('no')", "ValueError: no"),
    ],
)
def test_an_invalid_answer_of_a_policy_is_reported(tmp_path: Path, body: str, said: str) -> None:
    path = write(tmp_path, f"def allocate(problem):\n    {body}\n")
    with pytest.raises(InputError, match=said):
        ask(path, 9, job("a"), job("b"))


def test_a_policy_that_exceeds_a_quota_is_reported() -> None:
    p = AllocationProblem(
        nodes=8, horizon_s=60.0, jobs=(job("a", group="x"),), groups=(QuotaGroup(id="x", max_nodes=4),)
    )
    with pytest.raises(InputError, match="quota is 4"):
        policy.decide(policy.load("first-come"), p)
    assert policy.decide(policy.load("first-come"), replace(p, groups=())).nodes == {"a": 8}
