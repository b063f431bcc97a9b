"""A pipeline job on nodes that come, go and die: layers move, nothing is lost, the loss stays the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from golden import assert_same_training
from pipeline_job import SCRIPT, STEPS_PER_EPOCH, undisturbed, write_plans

from offcut.wire.records import history

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("live")]


def test_grows_and_shrinks_and_every_layer_moves(up: Callable, tmp_path: Path) -> None:
    running = up(4)
    running.client.post("/v1/nodes/want", {"nodes": ["n02", "n03", "n04"]})
    epochs = 60
    plans = write_plans(tmp_path, "1", "2", "2-1", "4")
    job = running.submit(SCRIPT, "--epochs", str(epochs), "--pace", "0.01", plans=plans)
    running.until(job, "one node", lambda shown: shown["size"] == 1 and shown["steps"] > 5)
    running.client.post("/v1/nodes/offer", {"nodes": ["n02", "n03", "n04"]})
    running.until(job, "four nodes", lambda shown: shown["size"] == 4)
    steps = running.job(job)["steps"]
    running.until(job, "some steps", lambda shown: shown["steps"] > steps + 5)
    running.client.post("/v1/nodes/want", {"nodes": ["n01"]})
    running.until(job, "three nodes, without the first", lambda shown: shown["size"] == 3)
    running.client.post("/v1/nodes/want", {"nodes": ["n03"]})
    running.until(job, "two nodes", lambda shown: shown["size"] == 2)
    running.until(job, "the end", lambda shown: shown["state"] == "finished")
    steps = history(running.paths.job(job) / "records")
    assert len(steps) == epochs * STEPS_PER_EPOCH
    assert all(len(record.applied_in) == 1 for record in steps.values()), "a graceful resize redoes nothing"
    assert_same_training(steps, undisturbed(tmp_path / "reference", epochs))
