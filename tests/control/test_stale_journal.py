"""Numbers of generations and incarnations are never given twice, whatever happened to the journal."""

from __future__ import annotations

import copy

import pytest
from world import World, only

from offcut.model import effects as ef
from offcut.model import events as ev
from offcut.model.events import Timer


@pytest.fixture
def world() -> World:
    """A job trains on two nodes."""
    world = World()
    world.submit("a", "1:4")
    world.offer("n1", "n2")
    world.until_members("a", ["n1", "n2"])
    assert world.members("a") == ["n1", "n2"]
    return world


def rolled_back(world: World, *nodes: str) -> World:
    """Let more happen, then start a controller whose journal has none of it; the world stays as it is."""
    before = copy.deepcopy(world.state)
    world.offer(*nodes)
    world.run(10)
    world.forget(before)
    return world


def report(world: World, node: str, *, generation: int | None = None, ready: bool = True) -> list[ef.Effect]:
    """Let the node's agent connect and report what it runs."""
    workers = tuple(
        ev.RunningWorker(
            process.job, process.member.incarnation, ready, process.generation if generation is None else generation
        )
        for process in world.processes.values()
        if process.member.node == node
    )
    highest = max((worker.incarnation for worker in workers), default=0)
    return world.send(ev.AgentReported(time_s=world.now_s, node=node, workers=workers, incarnation=highest))


def test_the_noted_numbers_raise_those_of_an_older_journal(world):
    rolled_back(world, "n3")
    then = world.processes[world.member("a", "n1")].generation
    assert then == world.state.jobs["a"].generation + 1
    effects = world.send(
        ev.ControllerStarted(
            time_s=world.now_s, incarnation=3, generations=(ev.JobGeneration("a", then), ev.JobGeneration("x", 99))
        )
    )
    (generation,) = only(effects, ef.SetGeneration)
    assert generation.generation == then + 1
    assert [member.node for member in generation.members] == ["n1", "n2"]
    assert generation.abort, "what is in flight under the forgotten generations may never end"
    assert "the journal is older than what has run since" in world.story("a")[-1]
    world.send(ev.NodesChanged(time_s=world.now_s, offered=(ev.Offer("n9"),)))
    world.run(5)
    assert world.member("a", "n9").incarnation == 4


def test_an_older_note_changes_nothing(world):
    jobs = world.state.jobs["a"]
    before = (jobs.generation, world.state.incarnations)
    effects = world.send(
        ev.ControllerStarted(time_s=world.now_s, incarnation=1, generations=(ev.JobGeneration("a", 1),))
    )
    assert only(effects, ef.SetGeneration) == []
    assert (jobs.generation, world.state.incarnations) == before


def test_numbers_reported_by_agents_raise_those_of_the_journal(world):
    rolled_back(world, "n3")
    newest = world.processes[world.member("a", "n1")].generation
    (generation,) = only(report(world, "n1"), ef.SetGeneration)
    assert generation.generation > newest + 100, "other agents may have heard of still newer ones"
    assert [member.node for member in generation.members] == ["n1", "n2"]
    assert only(report(world, "n2"), ef.SetGeneration) == [], "it has been lifted above what they report"
    world.run(5)
    assert world.state.jobs["a"].formed_generation == generation.generation


def test_an_agent_that_reports_late(world):
    """It has heard of a generation above the one that was set meanwhile."""
    rolled_back(world, "n3")
    (first,) = only(report(world, "n1"), ef.SetGeneration)
    (second,) = only(report(world, "n2", generation=first.generation + 5), ef.SetGeneration)
    assert second.generation > first.generation + 5


def test_a_later_worker_than_the_journal_knows_goes_on(world):
    """Its node was given a new one since: it has the training's state, and is not ended."""
    before = copy.deepcopy(world.state)
    old = world.member("a", "n1")
    world.exit(old, "lost")
    world.run(5)
    new = world.member("a", "n1")
    assert new.incarnation > old.incarnation
    world.forget(before)
    effects = report(world, "n1")
    assert only(effects, ef.StopWorkers) == []
    assert only(effects, ef.StartWorkers) == []
    (generation,) = only(effects, ef.SetGeneration)
    assert new in generation.members
    report(world, "n2")
    world.run(5)
    assert set(world.state.jobs["a"].state_holders) == {new, world.member("a", "n2")}


def test_a_later_worker_that_still_boots_is_waited_for(world):
    before = copy.deepcopy(world.state)
    world.exit(world.member("a", "n1"), "lost")
    world.run(0.5)
    (new,) = [process.member for process in world.processes.values() if process.member.node == "n1"]
    world.forget(before)
    effects = report(world, "n1", ready=False)
    (generation,) = only(effects, ef.SetGeneration)
    assert [member.node for member in generation.members] == ["n2"]
    world.run(10)
    assert set(world.state.jobs["a"].members) == {new, world.member("a", "n2")}


def test_a_worker_that_was_started_and_replaced_is_still_ended(world):
    world.send(
        ev.AgentReported(
            time_s=world.now_s, node="n1", workers=(ev.RunningWorker("a", 1, True, 1), ev.RunningWorker("a", 0, True))
        )
    )
    assert world.log[-1][1][-1].members[0].incarnation == 0


def test_absurd_numbers_are_ignored(world):
    generation, incarnations = world.state.jobs["a"].generation, world.state.incarnations
    world.send(
        ev.AgentReported(
            time_s=world.now_s,
            node="n1",
            workers=(ev.RunningWorker("a", world.member("a", "n1").incarnation, True, 2**40),),
            incarnation=2**40,
        )
    )
    assert (world.state.jobs["a"].generation, world.state.incarnations) == (generation, incarnations)


def test_a_job_of_mode_restart_is_launched_again_above_what_was_launched():
    world = World()
    world.submit("a", "1:4", mode="restart")
    world.offer("n1", "n2")
    world.run(20)
    generation = world.state.jobs["a"].generation
    effects = world.send(
        ev.ControllerStarted(time_s=world.now_s, incarnation=9, generations=(ev.JobGeneration("a", generation + 4),))
    )
    assert only(effects, ef.StopWorkers) or only(effects, ef.SetGeneration)
    world.until_members("a", ["n1", "n2"])
    assert world.members("a") == ["n1", "n2"]
    assert world.state.jobs["a"].generation > generation + 4
    assert all(member.incarnation > 9 for member in world.state.jobs["a"].members)


# -- timers and stopping ----------------------------------------------------------------------------------------------


def test_the_time_without_a_controller_does_not_count(world):
    """A node that boots when the controller dies has its whole limit when the next one starts, an hour later."""
    world.never_boots.add("n3")
    world.offer("n3")
    world.run(20)
    assert world.state.nodes["n3"].phase == "claimed"
    world.now_s += 3600
    world._due = [due for due in world._due if due.at_s > world.now_s]
    world.send(ev.ControllerStarted(time_s=world.now_s))
    assert world.state.nodes["n3"].phase == "claimed"
    left_s = world.state.timers[Timer("boot", "n3")] - world.now_s
    assert 30 < left_s <= 60
    world.run(left_s + 1)
    assert "n3" not in world.state.nodes


def test_a_clock_that_starts_in_the_past_delays_no_timer(world):
    world.never_boots.add("n3")
    world.offer("n3")
    world.run(20)
    limit_s = world.state.timers[Timer("boot", "n3")]
    world.send(ev.ControllerStarted(time_s=world.now_s - 3600))
    assert world.state.timers[Timer("boot", "n3")] == limit_s


def test_the_end_of_a_controller_releases_everything_and_keeps_claiming_as_it_is(world):
    released = only(world.send(ev.ControllerStopping(time_s=world.now_s)), ef.Release)
    assert [effect.nodes for effect in released] == [("n1", "n2")]
    world.run(30)
    world.offer("n4")
    world.run(30)
    assert world.state.claiming
    assert all(node.phase == "idle" for node in world.state.nodes.values())
    world.send(ev.ControllerStarted(time_s=world.now_s))
    world.until_members("a", ["n4"])


def test_a_release_of_all_outlives_the_controller(world):
    world.send(ev.ReleaseAsked(time_s=world.now_s))
    world.send(ev.ControllerStopping(time_s=world.now_s))
    world.send(ev.ControllerStarted(time_s=world.now_s))
    world.offer("n4")
    world.run(60)
    assert world.state.nodes["n4"].phase == "idle"
    world.send(ev.ClaimingResumed(time_s=world.now_s))
    world.until_members("a", ["n4"])


# -- the nodes that are held ------------------------------------------------------------------------------------------


def test_a_node_that_is_held_and_not_in_the_journal_is_released(world):
    """Nothing else would end the pilot of a claim that an older journal has forgotten."""
    effects = world.send(ev.NodesHeld(time_s=world.now_s, nodes=("n1", "n2", "unknown")))
    assert [effect.nodes for effect in only(effects, ef.Release)] == [("unknown",)]
    assert world.members("a") == ["n1", "n2"]


def test_a_node_that_is_held_and_idle_in_the_journal_is_released(world):
    world.solver_waits = True
    world.offer("n3")
    effects = world.send(ev.NodesHeld(time_s=world.now_s, nodes=("n1", "n2", "n3")))
    assert [effect.nodes for effect in only(effects, ef.Release)] == [("n3",)]
    assert "n3" not in world.state.nodes


def test_a_node_that_is_held_no_longer_is_lost_and_the_job_goes_on_without_it(world):
    effects = world.send(ev.NodesHeld(time_s=world.now_s, nodes=("n1",)))
    assert [effect.nodes for effect in only(effects, ef.Release)] == [("n2",)], "its agent may still run"
    assert "n2" not in world.state.nodes
    assert world.members("a") == ["n1"]


def test_idle_nodes_of_the_journal_are_not_claimed_before_the_cluster_offers_them(world):
    world.solver_waits = True
    world.offer("n3")
    world.send(ev.NodesHeld(time_s=world.now_s, nodes=("n1", "n2")))
    world.give(a=3)
    assert not [effect for effect in world.effects(ef.Claim) if "n3" in effect.nodes]
    world.solver_waits = False
    world.offer("n3")
    world.until_members("a", ["n1", "n2", "n3"])


def test_a_restart_that_finds_everything_as_the_journal_says_changes_nothing(world):
    assert not only(world.restart(), ef.Release)
    world.run(30)
    assert world.members("a") == ["n1", "n2"]
    assert not only(world.log[-1][1], ef.SetGeneration)
