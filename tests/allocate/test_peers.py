"""The published node-level model, as the benchmark's peers build it, has the optimum that the counts have."""

from __future__ import annotations

import importlib
import random
from pathlib import Path
from typing import Any

import pytest

from offcut.allocate import exact
from offcut.model import AllocationProblem, JobRequest, ScalingCurve


def small(rng: random.Random) -> AllocationProblem:
    """Two or three jobs on up to seven nodes, within the published model: a range of sizes, nodes held to spare."""
    nodes = rng.randint(3, 7)
    left = nodes
    jobs = []
    for i in range(rng.randint(2, 3)):
        current = rng.randint(0, left // 2)
        left -= current
        rates = sorted(10 * rng.random() for _ in range(3))
        jobs.append(
            JobRequest(
                id=str(i),
                min_nodes=1,
                max_nodes=rng.randint(2, 6),
                curve=ScalingCurve((1, 3, 6), tuple(rates)),
                current=current,
                grow_cost_s=rng.choice([0.0, 5.0, 30.0]),
                shrink_cost_s=rng.choice([0.0, 3.0, 20.0]),
            )
        )
    return AllocationProblem(nodes=nodes, horizon_s=60.0, jobs=tuple(jobs))


@pytest.mark.parametrize("peer", ["highs_nodes", "highs_counts", "cbc_nodes"])
def test_a_peer_finds_the_same_optimum(peer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[2] / "benchmarks"))
    if peer == "cbc_nodes":
        pytest.importorskip("mip", reason="python-mip is not installed (the extra `bench`)")
    solve: Any = importlib.import_module(f"allocate_peers.{peer}").solve
    rng = random.Random(peer)
    for _ in range(12):
        problem = small(rng)
        _, objective, proven = solve(problem, 30.0)
        assert proven
        assert objective == pytest.approx(exact.solve(problem).objective, rel=1e-6), problem
