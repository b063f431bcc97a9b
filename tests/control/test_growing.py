"""A job gets nodes: workers start, wait for each other, and join.

`World` boots a node in 1 s, starts a worker in 2 s and forms a generation in 0.2 s; a worker that is told to leave
needs 0.1 s.
"""

from __future__ import annotations

from scenarios import running
from world import only

from offcut.model import effects as ef
from offcut.model import events as ev
from offcut.model.events import Member


def test_the_first_job_claims_boots_starts_and_trains(world):
    world.submit("a")
    effects = world.offer("n1")
    assert only(effects, ef.Solve)[0].problem.nodes == 1
    world.until_members("a", ["n1"])
    assert [claim.nodes for claim in world.effects(ef.Claim)] == [("n1",)]
    assert [(start.job, start.members) for start in world.effects(ef.StartWorkers)] == [("a", (Member("n1", 1),))]
    (first,) = world.generations("a")
    assert (first.generation, first.members, first.previous, first.abort) == (1, (Member("n1", 1),), (), False)
    assert world.state.jobs["a"].phase == "running"
    assert world.story("a")[-1] == "size 1 after 200 ms, at step 1"


def test_it_grows_when_a_node_comes_and_keeps_training_meanwhile(world):
    running(world, "n1")
    world.offer("n2")
    world.until_worker("n2", "starting")
    assert world.members("a") == ["n1"], "the newcomer boots beside the training"
    world.until_members("a", ["n1", "n2"])
    assert world.members("a") == ["n1", "n2"]
    assert [generation.abort for generation in world.generations("a")] == [False, False]


def test_joiners_come_after_members_in_rank_order(world):
    running(world, "n5")
    world.offer("n1", "n9")
    world.until_size("a", 3)
    assert world.members("a")[0] == "n5"
    world.offer("n0")
    world.until_size("a", 4)
    assert world.members("a")[0] == "n5"
    assert world.members("a")[3] == "n0"


def test_the_join_window_lets_workers_that_are_nearly_ready_join_together(world):
    world.submit("a")
    world.never_ready.update({"n1", "n2", "n3"})
    world.offer("n1", "n2", "n3")
    world.until_worker("n3", "starting")
    members = [Member(name, world.state.nodes[name].incarnation) for name in ("n1", "n2", "n3")]
    for member in members[:2]:
        world.send(ev.WorkersReady(time_s=world.now_s, job="a", members=(member,)))
        world.run(0.1)
    assert not world.generations("a")
    world.run(0.1)
    assert [generation.members for generation in world.generations("a")] == [tuple(members[:2])], (
        "0.3 s after the first was ready"
    )
    world.send(ev.WorkersReady(time_s=world.now_s, job="a", members=(members[2],)))
    assert world.members("a") == ["n1", "n2", "n3"], "nobody else is starting: no reason to wait"


def test_a_new_join_window_begins_after_one_that_came_to_nothing(world):
    running(world, "n1")
    world.never_ready.update({"n2", "n3", "n4", "n5"})
    world.offer("n2", "n3")
    world.until_worker("n3", "starting")
    ready = Member("n2", world.state.nodes["n2"].incarnation)
    world.send(ev.WorkersReady(time_s=world.now_s, job="a", members=(ready,)))
    world.want("n2", "n3")
    world.run(20)
    world.offer("n4", "n5")
    world.until_worker("n5", "starting")
    ready = Member("n4", world.state.nodes["n4"].incarnation)
    world.send(ev.WorkersReady(time_s=world.now_s, job="a", members=(ready,)))
    assert world.members("a") == ["n1"], "n5 is still starting"
    world.run(0.3)
    assert world.members("a") == ["n1", "n4"]


def test_workers_below_the_smallest_size_wait(world):
    world.submit("a", "3")
    world.offer("n1", "n2")
    world.run(5)
    assert not world.effects(ef.Claim)
    world.offer("n3")
    world.until_size("a", 3)
    assert len(world.generations("a")) == 1
    assert len(world.members("a")) == 3
