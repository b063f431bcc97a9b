"""Agents come back after their connection was cut.

`World` boots a node in 1 s, starts a worker in 2 s and forms a generation in 0.2 s; a worker that is told to leave
needs 0.1 s.
"""

from __future__ import annotations

from scenarios import running
from world import World, only

from offcut.model import effects as ef
from offcut.model import events as ev
from offcut.model.events import Member


def report(world: World, node: str, *workers: ev.RunningWorker) -> list[ef.Effect]:
    return world.send(ev.AgentReported(time_s=world.now_s, node=node, workers=workers))


def test_an_agent_that_runs_what_it_should_changes_nothing(world):
    running(world, "n1")
    assert report(world, "n1", ev.RunningWorker("a", 1, True)) == []


def test_an_unknown_node_is_released(world):
    (release,) = report(world, "n1")
    assert release.nodes == ("n1",)
    (release,) = world.send(ev.NodesBooted(time_s=0.0, nodes=("n1", "n1")))
    assert release.nodes == ("n1",)


def test_an_agent_that_lost_its_member_starts_a_new_one(world):
    running(world, "n1", "n2")
    lost = world.member("a", "n2")
    del world.processes[lost]
    effects = report(world, "n2")
    (generation,) = only(effects, ef.SetGeneration)
    assert [member.node for member in generation.members] == ["n1"]
    assert generation.abort
    assert only(effects, ef.StartWorkers)[0].members[0].node == "n2"
    assert lost not in world.state.jobs["a"].state_holders
    world.until_members("a", ["n1", "n2"])
    assert world.members("a") == ["n1", "n2"]


def test_an_agent_that_lost_the_first_member_of_a_finishing_job(world):
    running(world, "n1", "n2")
    first = world.state.jobs["a"].members[0]
    world.trained("a")
    del world.processes[first]
    assert not only(report(world, first.node), ef.StartWorkers)
    assert world.state.jobs["a"].phase == "waiting", "its script runs its end again"


def test_an_agent_is_told_to_stop_workers_that_it_should_not_run(world):
    running(world, "n1")
    effects = report(world, "n1", ev.RunningWorker("a", 1, True), ev.RunningWorker("old", 1, True))
    assert [(stop.job, stop.members, stop.limit_s) for stop in effects] == [("old", (Member("n1", 1),), 0.0)]


def test_a_worker_that_is_saving_the_state_keeps_its_time_when_its_agent_comes_back(world):
    running(world, "n1")
    world.leave_s = 5.0
    world.send(ev.JobPaused(time_s=world.now_s, job="a"))
    (stop,) = report(world, "n1", ev.RunningWorker("a", 1, True))
    assert stop.limit_s == world.state.settings.stop_limit_s


def test_a_worker_became_ready_while_the_line_was_cut(world):
    world.never_ready.add("n1")
    world.submit("a")
    world.offer("n1")
    world.until_worker("n1", "starting")
    assert only(report(world, "n1", ev.RunningWorker("a", 1, True)), ef.SetGeneration)


def test_no_generation_waits_for_a_leaving_member_that_its_agent_does_not_know(world):
    """It was told to go, and ended unheard while the agent's line was cut."""
    world.submit("a", "1:2")
    world.offer("n1", "n2")
    world.until_members("a", ["n1", "n2"])
    world.leave_s = 100.0
    world.send(ev.JobPaused(time_s=world.now_s, job="a"))
    assert len(world.state.jobs["a"].state_holders) == 2
    for node in ("n1", "n2"):
        world.processes = {member: p for member, p in world.processes.items() if member.node != node}
        world.send(ev.AgentReported(time_s=world.now_s, node=node, workers=()))
    assert world.state.jobs["a"].state_holders == ()
