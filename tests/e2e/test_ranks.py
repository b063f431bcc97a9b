"""Several ranks on each node, and sizes from a list: the training is the same at any size."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from golden import SCRIPT, STEPS_PER_EPOCH, Pace, assert_same_training, undisturbed

from offcut.wire.step_records import history

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("live-3")]


def members_by_generation(running, job: str) -> dict[int, dict[str, int]]:
    """Return how many ranks of each node contributed to steps under each generation."""
    found: dict[int, dict[str, int]] = {}
    for path in (running.paths.job(job) / "records").glob("*.jsonl"):
        node = path.stem.partition("#")[0]
        for generation in {
            json.loads(line)["generation"] for line in path.read_text().splitlines() if line.endswith("}")
        }:
            ranks = found.setdefault(generation, {})
            ranks[node] = ranks.get(node, 0) + 1
    return found


def until_trained_at(running, job: str, pace: Pace, size: int) -> dict[str, Any]:
    """Wait until all ranks have done some steps at this size: one is shown before its members have formed."""

    def begun(shown: dict[str, Any]) -> bool:
        return shown["size"] == size == len(members_by_generation(running, job).get(shown["generation"], {}))

    shown = running.until(job, f"a step at {size}", pace.awaiting(begun))
    done = pace.awaiting(lambda later: later["steps"] > shown["steps"] + 10)
    return running.until(job, f"steps at {size}", done)


@pytest.mark.timeout(300)
def test_two_ranks_on_each_node_grow_shrink_and_lose_one(up: Callable, tmp_path: Path) -> None:
    """A node is a member with all its ranks or not at all."""
    epochs = 30
    pace = Pace(tmp_path, epochs * STEPS_PER_EPOCH)
    running = up(2)
    running.client.post("/v1/nodes/want", {"nodes": ["n02"]})
    job = running.submit(
        SCRIPT, "--epochs", str(epochs), *pace.options, sizes="1:2", ranks_per_node=2, checkpoint_age_s=1.0
    )
    until_trained_at(running, job, pace, 1)
    assert len(running.workers()) == 2
    running.client.post("/v1/nodes/offer", {"nodes": ["n02"]})
    grown = until_trained_at(running, job, pace, 2)

    before = running.workers()
    assert len(before) == 4
    before[-1].kill()
    gone = pace.awaiting(lambda _: sum(rank.is_running() for rank in before) == 2)
    running.until(job, "both ranks of one node to go", gone)
    new = pace.awaiting(lambda shown: shown["size"] == 2 and shown["generation"] >= grown["generation"] + 2)
    running.until(job, "a new pair", new)
    until_trained_at(running, job, pace, 2)

    running.client.post("/v1/nodes/want", {"nodes": ["n01"]})
    assert until_trained_at(running, job, pace, 1)["nodes"] == ["n02"]
    pace.to_the_end()
    shown = running.until(job, "the end", lambda shown: shown["state"] == "finished")
    assert shown["steps"] == epochs * STEPS_PER_EPOCH
    members = members_by_generation(running, job)
    assert {ranks for nodes in members.values() for ranks in nodes.values()} == {2}
    assert {len(nodes) for nodes in members.values()} == {1, 2}
    assert_same_training(history(running.paths.job(job) / "records"), undisturbed(epochs))


@pytest.mark.timeout(300)
@pytest.mark.ci
def test_only_sizes_of_the_list_are_trained_at_and_then_only_multiples(up: Callable, tmp_path: Path) -> None:
    epochs = 30
    pace = Pace(tmp_path, epochs * STEPS_PER_EPOCH)
    running = up(3)
    running.client.post("/v1/nodes/want", {"nodes": ["n03"]})
    job = running.submit(SCRIPT, "--epochs", str(epochs), *pace.options, sizes="1,3")
    until_trained_at(running, job, pace, 1)
    running.client.post("/v1/nodes/offer", {"nodes": ["n03"]})
    until_trained_at(running, job, pace, 3)
    running.client.post("/v1/nodes/want", {"nodes": ["n01"]})
    listed = until_trained_at(running, job, pace, 1)["generation"]
    running.client.patch(f"/v1/jobs/{job}", {"sizes": "2:8:2"})
    until_trained_at(running, job, pace, 2)
    running.client.post("/v1/nodes/offer", {"nodes": ["n01"]})
    pace.to_the_end()
    running.until(job, "the end", lambda shown: shown["state"] == "finished")
    sizes = {generation: len(nodes) for generation, nodes in members_by_generation(running, job).items()}
    assert {size for generation, size in sizes.items() if generation <= listed} == {1, 3}
    assert {size for generation, size in sizes.items() if generation > listed} == {2}
    assert_same_training(history(running.paths.job(job) / "records"), undisturbed(epochs))
