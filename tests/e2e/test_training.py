"""Real training on nodes that come, go and die: nothing is lost, nothing counts twice, the loss stays the same."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from golden import SCRIPT, STEPS_PER_EPOCH, Pace, assert_same_training, undisturbed

from live import Running, prepare_nodes
from offcut.wire.step_records import history

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("live-1")]

NODES = ["n01", "n02", "n03"]


@pytest.mark.ci
def test_grows_and_shrinks_by_hand(running: Running, tmp_path: Path) -> None:
    prepare_nodes(running, NODES[:1])
    epochs = 24
    pace = Pace(tmp_path, epochs * STEPS_PER_EPOCH)
    job = running.submit(SCRIPT, "--epochs", str(epochs), *pace.options, sizes="1:3")
    running.until(job, "one node", lambda shown: shown["size"] == 1 and shown["steps"] > 5)
    running.client.post("/v1/nodes/offer", {"nodes": ["n02", "n03"]})
    running.until(job, "three nodes", pace.awaiting(lambda shown: shown["size"] == 3))
    running.client.post("/v1/nodes/want", {"nodes": ["n01"]})
    running.until(job, "two nodes, without the first", pace.awaiting(lambda shown: shown["nodes"] == ["n02", "n03"]))
    pace.to_the_end()
    running.until(job, "the end", lambda shown: shown["state"] == "finished")
    steps = history(running.paths.job(job) / "records")
    assert len(steps) == epochs * STEPS_PER_EPOCH
    assert all(len(record.applied_in) == 1 for record in steps.values()), "a graceful resize redoes nothing"
    assert_same_training(steps, undisturbed(epochs))


def test_last_node_goes_and_training_continues_where_it_was(running: Running, tmp_path: Path) -> None:
    prepare_nodes(running, NODES[:1])
    epochs = 20
    pace = Pace(tmp_path, epochs * STEPS_PER_EPOCH)
    job = running.submit(SCRIPT, "--epochs", str(epochs), *pace.options, sizes="1")
    running.until(job, "some steps", pace.awaiting(lambda shown: shown["steps"] > 20))
    running.client.post("/v1/nodes/want", {"nodes": ["n01"]})
    running.until(job, "no node", pace.awaiting(lambda shown: shown["size"] == 0))
    pace.to_the_end()
    running.client.post("/v1/nodes/offer", {"nodes": ["n01"]})
    running.until(job, "the end", lambda shown: shown["state"] == "finished")
    steps = history(running.paths.job(job) / "records")
    assert all(len(record.applied_in) == 1 for record in steps.values()), "with warning nothing is redone"
    assert_same_training(steps, undisturbed(epochs))


@pytest.mark.ci
def test_every_worker_killed_resumes_from_a_checkpoint_at_another_size(running: Running, tmp_path: Path) -> None:
    prepare_nodes(running, NODES[:2])
    epochs = 24
    pace = Pace(tmp_path, epochs * STEPS_PER_EPOCH)
    job = running.submit(
        SCRIPT, "--epochs", str(epochs), *pace.options, sizes="1:2", checkpoint_age_s=0.5, max_failures=3
    )
    checkpoints = running.paths.job(job) / "checkpoints"
    # Each member has written its share.
    by_two = pace.awaiting(lambda _: list(checkpoints.glob("step-*/__1_0.distcp")))
    running.until(job, "a checkpoint by two", by_two)
    for worker in running.workers():
        worker.kill()
    running.client.post("/v1/nodes/want", {"nodes": ["n02"]})
    pace.to_the_end()
    running.until(job, "the end", lambda shown: shown["state"] == "finished")
    steps = history(running.paths.job(job) / "records")
    redone = sum(len(record.applied_in) - 1 for record in steps.values())
    assert redone <= 0.5 / 0.01 + 1, "at most checkpoint_age_s of work"
    assert_same_training(steps, undisturbed(epochs))


def test_kills_of_workers_and_nodes_lose_nothing(running: Running, tmp_path: Path) -> None:
    """Twelve times, at moments that a seed chooses, a worker or a whole node dies without warning."""
    choose = random.Random(20210210)
    prepare_nodes(running, NODES)
    epochs = 60
    pace = Pace(tmp_path, epochs * STEPS_PER_EPOCH)
    job = running.submit(
        SCRIPT, "--epochs", str(epochs), *pace.options, sizes="1:3", checkpoint_age_s=1.0, max_failures=3
    )
    kills = 0
    while kills < 12:
        pace.set(0.5)
        running.until(job, "two nodes", pace.awaiting(lambda shown: shown["size"] >= 2))
        pace.set(pace.TURN_S)
        steps = running.job(job)["steps"] + choose.randint(5, 30)
        there = pace.awaiting(lambda shown, steps=steps: shown["size"] >= 2 and shown["steps"] >= steps)
        running.until(job, f"step {steps}", there)
        victims = running.workers() if choose.random() < 0.6 else running.agents()
        if victims:
            choose.choice(victims).kill()
            kills += 1
    pace.to_the_end()
    shown = running.until(job, "the end", lambda shown: shown["state"] == "finished")
    assert shown["steps"] == epochs * STEPS_PER_EPOCH
    assert_same_training(history(running.paths.job(job) / "records"), undisturbed(epochs))


def test_a_script_that_raises_fails_with_its_traceback_and_others_go_on(running: Running) -> None:
    prepare_nodes(running, NODES[:2])
    bad = running.submit(SCRIPT, "--raise-at", "7", name="bad", sizes="1", max_failures=1)
    good = running.submit(SCRIPT, "--epochs", "30", "--pace", "0.002", name="good", sizes="1")
    shown = running.until(bad, "its failure", lambda shown: shown["state"] == "failed")
    assert "does not please me" in shown["reason"]
    logs = "".join(path.read_text() for path in (running.paths.job(bad) / "logs").glob("*.log"))
    assert "Traceback" in logs
    running.until(good, "the end", lambda shown: shown["state"] == "finished")
