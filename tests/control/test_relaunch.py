"""Jobs of mode `restart`: one launch after the other, never two at once, and which failures count.

`World` needs 1 s to boot a node, 2 s to have a worker ready, 0.1 s to end one that was told to go."""

from __future__ import annotations

import pytest
from world import World, only

from offcut.control import Settings
from offcut.model import ScalingCurve
from offcut.model import effects as ef
from offcut.model import events as ev

FREE = {"grow_cost_s": 0.0, "shrink_cost_s": 0.0}


@pytest.fixture
def world() -> World:
    return World()


def launched(world: World, *nodes: str, sizes: str = "1:8", **fields) -> World:
    """Let job `a` run on these nodes."""
    world.submit("a", sizes, mode="restart", **{**FREE, **fields})
    world.offer(*nodes)
    world.until_members("a", list(nodes))
    return world


def launches(world: World) -> list[list[str]]:
    """Return the nodes of every launch, sorted."""
    return [sorted(m.node for m in generation.members) for generation in world.generations("a") if generation.members]


def fail(world: World, node: str, outcome: ev.Outcome = "failed", detail: str = "it raised") -> None:
    world.exit(world.member("a", node), outcome, detail)


def test_a_launch_is_over_everywhere_before_the_next_begins(world):
    launched(world, "n1", "n2")
    first = world.state.jobs["a"].members
    world.leave_s = 4.0
    world.offer("n3")
    world.until_worker("n3", "ready")
    assert world.state.jobs["a"].members == (), "all members were told to leave when the newcomer was ready"
    assert [stop.members for stop in world.effects(ef.StopWorkers)] == [first]
    world.run(3.0)
    assert launches(world) == [["n1", "n2"]], "they still save"
    world.until_members("a", ["n1", "n2", "n3"])
    assert launches(world) == [["n1", "n2"], ["n1", "n2", "n3"]]
    assert set(first).isdisjoint(world.state.jobs["a"].members), "an incarnation lives for one launch"


def test_members_have_the_restart_grace_of_their_job(world):
    launched(world, "n1", restart_grace_s=42.0)
    world.offer("n2")
    world.until_worker("n2", "ready")
    assert [stop.limit_s for stop in world.effects(ef.StopWorkers)] == [42.0]


def test_starting_nodes_are_waited_for_within_the_join_window(world):
    launched(world, "n1")
    world.never_ready.add("n3")
    world.offer("n2", "n3")
    world.run(7.5)
    assert world.members("a") == ["n1"]
    world.until_members("a", ["n1", "n2"])
    assert launches(world) == [["n1"], ["n1", "n2"]], "but no longer than the window"


def test_a_wanted_node_ends_the_launch_and_the_rest_go_on_without_it(world):
    launched(world, "n1", "n2", "n3")
    world.want("n2")
    world.until_members("a", ["n1", "n3"])
    assert launches(world) == [["n1", "n2", "n3"], ["n1", "n3"]]
    assert world.state.jobs["a"].failures == 0


def test_ranks_that_fail_because_a_node_died_are_not_held_against_the_job(world):
    launched(world, "n1", "n2", max_failures=0)
    world.leave_s = 3.0
    fail(world, "n1", detail="connection reset by peer")
    world.run(1.0)
    world.lose("n2")
    world.until_members("a", ["n1"])
    assert launches(world)[-1] == ["n1"]
    assert world.state.jobs["a"].failures == 0


def test_ranks_that_fail_before_the_node_is_reported_wanted_are_not_held_against_the_job(world):
    launched(world, "n1", "n2", max_failures=0)
    world.leave_s = 0.5
    leaving, failing = world.member("a", "n1"), world.member("a", "n2")
    world.exit(leaving, "left")
    world.exit(failing, "failed", "connection reset by peer")
    world.until_settled()
    assert world.state.jobs["a"].phase == "running"
    assert world.state.jobs["a"].failures == 0


def test_all_ranks_that_fail_in_one_launch_are_one_failure_and_the_first_is_the_reason(world):
    launched(world, "n1", "n2", "n3", max_failures=2)
    for failures in (1, 2):
        fail(world, "n2", detail="the cause")
        world.until_members("a", ["n1", "n2", "n3"])
        assert world.state.jobs["a"].failures == failures
    first, second = world.state.jobs["a"].members[:2]
    world.exit(first, "failed", "the cause")
    world.exit(second, "failed", "connection reset by peer")
    world.run_until(lambda: world.state.jobs["a"].phase == "failed")
    assert world.state.jobs["a"].reason == "3 failures in a row; the last: the cause"


def test_a_rank_that_was_killed_is_the_reason_rather_than_those_that_missed_it(world):
    launched(world, "n1", "n2", max_failures=0)
    fail(world, "n1", detail="connection reset by peer")
    world.exit(world.processes and next(iter(world.processes)), "lost", "killed by signal 9")
    assert world.state.jobs["a"].phase == "failed"
    assert world.state.jobs["a"].reason == "killed by signal 9"


def test_the_wait_before_the_next_launch_doubles(world):
    launched(world, "n1", max_failures=9)
    waits = []
    for _ in range(4):
        fail(world, "n1")
        at_s = world.now_s
        while not world.state.jobs["a"].members:
            world.next()
        waits.append(round(world.now_s - at_s, 1))
    assert waits == [2.0, 2.0, 2.0, 4.0], "a successor needs 2 s anyway; 0.5, 1, 2, 4 s are to be waited for"


def test_a_launch_that_lived_long_enough_to_save_forgives_those_before(world):
    launched(world, "n1", max_failures=1, checkpoint_age_s=20.0)
    fail(world, "n1")
    world.until_members("a", ["n1"])
    assert world.state.jobs["a"].failures == 1
    world.run(world.state.settings.restart_cost_s + 20.0 + world.ready_s)
    fail(world, "n1")
    world.until_members("a", ["n1"])
    assert world.state.jobs["a"].failures == 1
    assert world.state.jobs["a"].phase == "running"


def test_it_is_finished_when_every_rank_has_ended_well(world):
    launched(world, "n1", "n2")
    fail(world, "n1", "finished", "")
    world.run(1)
    assert world.state.jobs["a"].phase == "finishing"
    fail(world, "n2", "finished", "")
    assert world.state.jobs["a"].phase == "finished"
    world.run_until(lambda: not world.pilots)


@pytest.mark.parametrize("how", ["failed", "wanted", "lost"])
def test_if_one_does_not_come_to_its_end_the_script_is_launched_once_more(world, how):
    launched(world, "n1", "n2")
    fail(world, "n1", "finished", "")
    world.run(0.5)
    if how == "failed":
        fail(world, "n2")
    elif how == "wanted":
        world.want("n2")
    else:
        world.lose("n2")
    world.run_until(lambda: len(launches(world)) > 1)
    assert launches(world)[1:] in ([["n1"]], [["n1", "n2"]])
    assert world.state.jobs["a"].failures == (how == "failed")


def test_a_rank_that_hangs_when_others_have_ended_fails_the_job(world):
    launched(world, "n1", "n2", hang_limit_s=50.0)
    fail(world, "n1", "finished", "")
    world.run_until(lambda: world.state.jobs["a"].phase == "failed")
    assert "still ran 50 s after others" in world.state.jobs["a"].reason


def test_paused_and_resumed_it_waits_for_the_last_launch_to_be_over(world):
    launched(world, "n1")
    world.leave_s = 8.0
    world.send(ev.JobPaused(time_s=world.now_s, job="a"))
    world.send(ev.JobResumed(time_s=world.now_s, job="a"))
    world.run(7.0)
    assert len(launches(world)) == 1
    world.until_members("a", ["n1"])
    assert launches(world) == [["n1"], ["n1"]]


def test_an_agent_that_forgot_its_ranks_begins_a_new_launch_and_no_failure(world):
    launched(world, "n1", "n2")
    member = world.member("a", "n1")
    del world.processes[member]
    world.send(ev.AgentReported(time_s=world.now_s, node="n1", workers=()))
    world.until_members("a", ["n1", "n2"])
    assert launches(world) == [["n1", "n2"], ["n1", "n2"]]
    assert world.state.jobs["a"].failures == 0


def test_resizes_cost_the_job_s_values_or_those_of_its_mode(world):
    world.submit("a", mode="restart")
    world.submit("b", mode="restart", grow_cost_s=7.0, shrink_cost_s=3.0)
    world.submit("c")
    problem = only(world.offer("n1", "n2", "n3"), ef.Solve)[0].problem
    settings = Settings()
    costs = {job.id: (job.grow_cost_s, job.shrink_cost_s) for job in problem.jobs}
    assert costs == {
        "a": (settings.restart_cost_s, settings.restart_cost_s),
        "b": (7.0, 3.0),
        "c": (settings.grow_cost_s, settings.shrink_cost_s),
    }


def test_a_restart_job_is_resized_more_rarely_than_a_session(world):
    """Nodes come one after another: a session takes each, a restart waits until what it gains is worth a launch."""
    sizes = {}
    for mode in ("session", "restart"):
        world = World()
        world.submit("a", "1:8", mode=mode, curve=ScalingCurve((1, 8), (1.0, 8.0)))
        for node in ("n1", "n2", "n3", "n4", "n5", "n6"):
            world.offer(node)
            world.run(20)
        sizes[mode] = [len(nodes) for nodes in launches(world)]
    assert sizes["session"] == [1, 2, 3, 4, 5, 6]
    assert sizes["restart"] == [1, 2, 3, 5]
