"""A worker that fails because its files cannot be written: no failure of the job's, and no fault of the node's."""

from __future__ import annotations

import pytest
from world import World

from offcut.model import events as ev

FULL = "nothing can be written in /jobs/a: No space left on device"


@pytest.fixture
def world() -> World:
    return World()


def fail(world: World, node: str, detail: str = "no output") -> float:
    """Let a worker of job `a` fail. Return the seconds until it is started again."""
    world.exit(world.member("a", node), "failed", detail, disk=FULL)
    return world.state.jobs["a"].disk.again_s - world.now_s


def test_the_job_waits_for_the_disk_longer_each_time_and_never_fails(world):
    world.submit("a", "1", max_failures=0)
    world.offer("n1")
    world.until_members("a", ["n1"])
    waits = []
    world.never_forms.add("a")
    for _ in range(10):
        waits.append(fail(world, "n1"))
        world.run(waits[-1] + 4)
    first_s = world.state.settings.retry_wait_s
    assert waits == pytest.approx([first_s * 2 ** min(7, i) for i in range(10)])
    job = world.state.jobs["a"]
    assert (job.phase, job.failures) == ("running", 0)
    assert world.state.set_aside == {}, "the node is not at fault"
    assert f"{FULL}. It is started again in 0.5 s; this is not counted as a failure" in world.story("a")
    world.never_forms.clear()
    fail(world, "n1")
    world.run(100)
    assert (job.size, job.disk.reason) == (1, "")
    assert fail(world, "n1") == pytest.approx(first_s), "it has trained since"


def test_workers_that_fail_together_wait_together(world):
    world.submit("a", "1:4")
    world.offer("n1", "n2", "n3", "n4")
    world.until_size("a", 4)
    nodes = world.members("a")
    assert len(nodes) == 4
    waits = [fail(world, node) for node in nodes]
    assert waits == pytest.approx([world.state.settings.retry_wait_s] * 4)
    world.until_size("a", 4)


def test_a_script_that_could_not_save_its_model_runs_its_end_again(world):
    world.submit("a", "1")
    world.offer("n1")
    world.until_members("a", ["n1"])
    world.trained("a")
    assert world.state.jobs["a"].phase == "finishing"
    fail(world, "n1")
    assert world.state.jobs["a"].phase == "waiting"
    world.run_until(lambda: world.state.jobs["a"].phase == "running")


def test_in_mode_restart_a_launch_that_the_disk_ended_is_not_counted(world):
    world.submit("a", "1", mode="restart", max_failures=0)
    world.offer("n1")
    world.until_members("a", ["n1"])
    waits = []
    for _ in range(4):
        waits.append(fail(world, "n1"))
        world.run(waits[-1] + 5)
        assert world.members("a") == ["n1"], "launched again"
    assert waits == pytest.approx([0.5, 1.0, 2.0, 4.0])
    world.exit(world.member("a", "n1"), "failed", "its own fault")
    assert world.state.jobs["a"].phase == "failed"


def test_another_failure_counts_as_ever(world):
    world.submit("a", "1", max_failures=0)
    world.offer("n1")
    world.until_members("a", ["n1"])
    fail(world, "n1")
    world.until_members("a", ["n1"])
    world.send(
        ev.WorkerExited(
            time_s=world.now_s, job="a", member=world.member("a", "n1"), outcome="failed", detail="boom", generation=99
        )
    )
    assert world.state.jobs["a"].phase == "failed"
