"""Users pause, resume, cancel and change jobs; settings hold.

`World` boots a node in 1 s, starts a worker in 2 s and forms a generation in 0.2 s; a worker that is told to leave
needs 0.1 s.
"""

from __future__ import annotations

import pytest
from scenarios import running
from world import World, only

from offcut.control import Settings
from offcut.model import ScalingCurve, Sizes
from offcut.model import effects as ef
from offcut.model import events as ev


def test_a_paused_job_has_no_nodes_and_goes_on_when_resumed(world):
    running(world, "n1", "n2")
    effects = world.send(ev.JobPaused(time_s=world.now_s, job="a"))
    (generation,) = only(effects, ef.SetGeneration)
    assert (generation.members, generation.abort) == ((), False), "the members leave at their boundary"
    assert len(only(effects, ef.StopWorkers)[0].members) == 2
    assert not only(effects, ef.Solve)
    world.run(5)
    assert world.state.jobs["a"].phase == "paused"
    world.send(ev.JobResumed(time_s=world.now_s, job="a"))
    world.until_size("a", 2)
    assert len(world.members("a")) == 2
    assert [generation.generation for generation in world.generations("a")] == [1, 2, 3]


def test_a_cancelled_job_frees_its_nodes_for_the_next(world):
    running(world, "n1", sizes="1")
    world.submit("b", "1")
    world.run(1)
    assert not world.state.jobs["b"].nodes
    world.send(ev.JobCancelled(time_s=world.now_s, job="a"))
    world.until_members("b", ["n1"])
    assert world.members("b") == ["n1"]
    assert world.state.jobs["a"].reason == "cancelled by hand"
    before = world.state.jobs["a"].ended_s
    world.send(ev.JobCancelled(time_s=world.now_s, job="a"))
    assert world.state.jobs["a"].ended_s == before


@pytest.mark.parametrize(("sizes", "members"), [("1:2", 2), ("1,4", 1), ("3", 3), ("5", 0)])
def test_new_sizes_hold_at_once(world, sizes, members):
    running(world, "n1", "n2", "n3")
    effects = world.send(ev.JobChanged(time_s=world.now_s, job="a", sizes=Sizes.parse(sizes)))
    assert [len(generation.members) for generation in only(effects, ef.SetGeneration)] == (
        [] if members == 3 else [members]
    )
    assert not any(generation.abort for generation in only(effects, ef.SetGeneration))
    assert len(world.members("a")) == members
    world.run(5)
    assert len(world.members("a")) == members


@pytest.mark.parametrize("mode", ["session", "restart"])
def test_workers_that_waited_for_others_train_alone_if_the_new_sizes_allow_it(world, mode):
    world.submit("a", "2", mode=mode)
    world.offer("n1", "n2")
    world.run_until(lambda: any(node.worker == "starting" for node in world.state.nodes.values()))
    world.solver_waits = True
    world.want("n2")
    world.until_worker("n1", "ready")
    assert world.members("a") == []
    world.send(ev.JobChanged(time_s=world.now_s, job="a", sizes=Sizes.parse("1:2")))
    world.run(1)
    assert world.members("a") == ["n1"]


def test_larger_sizes_let_a_job_grow_into_idle_nodes(world):
    running(world, "n1", sizes="1")
    world.offer("n2", "n3")
    world.run(5)
    assert len(world.members("a")) == 1
    world.send(ev.JobChanged(time_s=world.now_s, job="a", sizes=Sizes.parse("1:8"), weight=2.0))
    world.until_size("a", 3)
    assert len(world.members("a")) == 3
    assert world.state.jobs["a"].job.weight == 2.0


def test_sizes_beyond_the_curve_are_refused(world):
    running(world, "n1", sizes="1:2", curve=ScalingCurve((1, 2), (1.0, 1.9)))
    world.send(ev.JobChanged(time_s=world.now_s, job="a", sizes=Sizes.parse("4:8")))
    assert world.state.jobs["a"].job.sizes == Sizes((1, 2))
    assert world.story("a")[-1] == "not changed: sizes 4:8 lie outside its curve, which ends at 2"


def test_a_job_with_sizes_beyond_its_curve_waits_and_no_other_is_affected(world):
    world.submit("a", "4", curve=ScalingCurve((1, 2), (1.0, 1.9)))
    world.submit("b", "1:8")
    world.offer("n1", "n2", "n3", "n4", "n5")
    world.until_size("b", 5)
    assert world.state.jobs["a"].phase == "waiting"
    assert len(world.members("b")) == 5


def test_settings_change_the_limits():
    world = World(Settings(hold_s=1.0, boot_limit_s=0.5))
    world.submit("a")
    world.offer("n1")
    world.run(0.6)
    assert world.effects(ef.Release), "it needs 1 s to boot"
