"""Nodes are released: wanted by the queue, taken by the solver, unused, or by hand.

`World` boots a node in 1 s, starts a worker in 2 s and forms a generation in 0.2 s; a worker that is told to leave
needs 0.1 s.
"""

from __future__ import annotations

import pytest
from scenarios import running
from world import only

from offcut.model import Allocation
from offcut.model import effects as ef
from offcut.model import events as ev
from offcut.model.events import Member, Timer


def assert_older_is_abandoned(effects):
    """Check that the newest generation stands, and that reduces under older ones are abandoned."""
    assert not only(effects, ef.SetGeneration)
    (older,) = only(effects, ef.AbandonOlderGenerations)
    assert {member.node for member in older.members} >= {"n1", "n3"}


def test_a_wanted_node_is_released_first_and_the_others_go_on(world):
    running(world, "n1", "n2", "n3")
    effects = world.want("n2")
    assert isinstance(effects[0], ef.Release)
    assert effects[0].nodes == ("n2",)
    (generation,) = only(effects, ef.SetGeneration)
    assert [member.node for member in generation.members] == ["n1", "n3"]
    assert {member.node for member in generation.previous} == {"n1", "n2", "n3"}
    assert not generation.abort, "its worker leaves at the step boundary"
    assert isinstance(effects[-1], ef.Solve)
    assert not only(effects, ef.StopWorkers), "its agent obeys the queue, not us"


def test_a_wanted_node_that_vanishes_before_its_boundary_is_not_waited_for(world):
    """The others may hang in a step with it."""
    running(world, "n1", "n2", "n3")
    world.never_forms.add("a")
    world.want("n2")
    assert_older_is_abandoned(world.lose("n2"))


def test_a_leaving_worker_that_dies_before_its_boundary_is_not_waited_for(world):
    """Its node lives, so nothing but its exit tells; the others may hang in a step with it."""
    running(world, "n1", "n2", "n3")
    world.never_forms.add("a")
    leaver = world.member("a", "n2")
    world.want("n2")
    assert_older_is_abandoned(world.send(ev.WorkerExited(time_s=world.now_s, job="a", member=leaver, outcome="lost")))


def test_a_survivor_whose_old_generation_broke_frees_those_who_hang_in_it(world):
    running(world, "n1", "n2", "n3")
    world.never_forms.add("a")
    old = world.state.jobs["a"].generation
    world.want("n2")
    survivor = world.member("a", "n1")
    broken = ev.GenerationBroken(time_s=world.now_s, job="a", generation=old, member=survivor, detail="a peer is gone")
    assert_older_is_abandoned(world.send(broken))
    assert not only(world.send(broken), ef.AbandonOlderGenerations), "once is enough"


def test_a_long_step_is_not_broken_by_a_late_event(world):
    """Members that are told to walk away from a generation report that it broke; that must not break the next one."""
    running(world, "n1", "n2", "n3")
    world.never_forms.add("a")  # its first step is still under way
    old = world.state.jobs["a"].generation
    world.exit(world.member("a", "n2"), "lost")
    generations = len(world.generations("a"))
    for node in ("n1", "n3"):
        world.send(ev.GenerationBroken(time_s=world.now_s, job="a", generation=old, member=world.member("a", node)))
    world.run(world.state.settings.broken_wait_s + 0.01)
    assert len(world.generations("a")) == generations
    assert not world.effects(ef.AbandonOlderGenerations)


def test_a_wanted_node_that_vanishes_after_the_others_went_on_changes_nothing(world):
    running(world, "n1", "n2", "n3")
    world.leave_s = 1000.0
    world.want("n2")
    world.run(1)
    world.lose("n2")
    world.until_settled()
    assert [len(generation.members) for generation in world.generations("a")] == [3, 2]


def test_a_higher_priority_is_served_first(world):
    world.submit("a", "1:4")
    world.submit("b", "1:4", priority=1)
    world.offer("n1", "n2", "n3", "n4", "n5")
    world.until_settled()
    assert (len(world.members("a")), len(world.members("b"))) == (1, 4)


def test_a_wanted_node_that_is_idle_or_unknown_needs_no_release(world):
    world.offer("n1")
    assert not only(world.want("n1", "n7"), ef.Release)
    assert not world.state.nodes


def test_a_size_that_is_no_more_possible_frees_the_node_for_another_job(world):
    running(world, "n1", "n2", "n3", "n4", sizes="1,2,4", weight=100.0)
    world.submit("b", "1")
    world.run(5)
    assert len(world.members("a")) == 4
    effects = world.want("n4")
    (generation,) = only(effects, ef.SetGeneration)
    assert len(generation.members) == 2
    (stop,) = only(effects, ef.StopWorkers)
    freed = stop.members[0].node
    assert freed in {"n1", "n2", "n3"} - {member.node for member in generation.members}
    assert list(world.state.free) == [freed]
    world.until_members("b", [freed])
    assert world.members("b") == [freed]
    assert len([claim for claim in world.effects(ef.Claim) if freed in claim.nodes]) == 1, "it never was released"


def test_the_solver_takes_a_node_away_at_a_step_boundary(world):
    running(world, "n1", "n2")
    world.solver_waits = True
    world.submit("b", "1")
    effects = world.give(a=1, b=1)
    (generation,) = only(effects, ef.SetGeneration)
    assert (len(generation.members), generation.abort) == (1, False), "everybody lives: no step is abandoned"
    (stop,) = only(effects, ef.StopWorkers)
    assert effects.index(generation) < effects.index(stop)
    assert stop.limit_s == world.state.settings.stop_limit_s
    world.until_members("b", [stop.members[0].node])


def test_the_last_node_is_wanted_and_the_job_waits(world):
    running(world, "n1")
    (generation,) = only(world.want("n1"), ef.SetGeneration)
    assert generation.members == ()
    assert [member.node for member in generation.previous] == ["n1"]
    assert world.state.jobs["a"].phase == "waiting"
    world.run(20)
    world.offer("n2")
    world.until_members("a", ["n2"])


def test_a_successor_that_is_ready_waits_for_the_exit_of_the_member_with_the_state(world):
    running(world, "n1", sizes="1:2")
    world.never_forms.add("a")
    world.offer("n2")
    world.until_worker("n2", "member")
    assert world.members("a") == ["n1", "n2"], "generation 2 is set, but n2 has no state yet"
    world.leave_s = 0.8
    (generation,) = only(world.want("n1"), ef.SetGeneration)
    assert generation.members == (), "n2 alone would begin from an old checkpoint"
    world.never_forms.clear()
    before_s = world.now_s
    world.ready_s = 0.1
    world.run(0.7)
    assert world.members("a") == []
    assert Timer("depart", "a") in world.state.timers
    world.run(0.2)
    event, effects = next((e, f) for e, f in reversed(world.log) if only(f, ef.SetGeneration))
    assert isinstance(event, ev.WorkerExited)
    assert event.member.node == "n2", "n1 has left before it, and n2 may have formed generation 2 with it"
    assert event.time_s == pytest.approx(before_s + 0.8)
    assert [member.node for member in only(effects, ef.SetGeneration)[0].members] == ["n2"]
    assert Timer("depart", "a") not in world.state.timers


def test_a_generation_whose_report_is_late_may_have_trained(world):
    """Its members are told to leave before it is known to have formed: the next one waits until they have saved."""
    world.never_forms.add("a")
    world.submit("a", "1:2")
    world.offer("n1")
    world.until_worker("n1", "member")
    trained = world.member("a", "n1")
    world.leave_s = 5.0
    world.send(ev.JobPaused(time_s=world.now_s, job="a"))
    world.send(ev.JobResumed(time_s=world.now_s, job="a"))
    late = ev.GenerationFormed(time_s=world.now_s, job="a", generation=1, took_s=0.1, step=1)
    world.send(late)
    world.run(4.5)
    assert world.state.jobs["a"].state_holders == (trained,)
    assert world.members("a") == []
    world.run(1.0)
    assert world.members("a") == ["n1"]


def test_a_member_that_died_before_its_generation_formed_is_not_waited_for(world):
    world.never_forms.add("a")
    world.submit("a", "1:2")
    world.offer("n1")
    world.until_worker("n1", "member")
    world.exit(world.member("a", "n1"), "lost")
    assert world.state.jobs["a"].state_holders == ()


def test_the_wait_for_an_exit_that_is_never_reported_ends(world):
    running(world, "n1", sizes="1:2")
    world.offer("n2")
    world.never_ready.add("n2")
    world.until_worker("n2", "starting")
    world.leave_s = 1000.0
    world.want("n1")
    ready = Member("n2", world.state.nodes["n2"].incarnation)
    world.send(ev.WorkersReady(time_s=world.now_s, job="a", members=(ready,)))
    world.run(world.state.settings.depart_limit_s - 0.01)
    assert world.members("a") == []
    world.run(0.02)
    assert world.members("a") == ["n2"]


def test_a_holder_that_still_saves_a_large_state_is_waited_for(world):
    running(world, "n1")
    world.leave_s = 20.0
    world.send(ev.JobPaused(time_s=world.now_s, job="a"))
    world.run(0.1)
    world.send(ev.JobResumed(time_s=world.now_s, job="a"))
    world.run(19)
    assert world.members("a") == [], "its new worker would begin from an older state"
    world.run(2)
    assert world.members("a") == ["n1"]


def test_a_lost_holder_of_the_state_is_not_waited_for(world):
    running(world, "n1", sizes="1:2")
    world.never_forms.add("a")
    world.offer("n2")
    world.until_worker("n2", "member")
    (generation,) = only(world.lose("n1"), ef.SetGeneration)
    assert [member.node for member in generation.members] == ["n2"]
    assert generation.abort


def test_an_old_departure_does_not_disturb_a_job_that_trains_again(world):
    """Its last holder left while the job was paused: the timer that was set before has no effect any more."""
    running(world, "n1", sizes="1:2")
    world.offer("n2")
    world.never_ready.add("n2")
    world.until_worker("n2", "starting")
    world.leave_s, world.boot_s, world.ready_s = 0.2, 0.1, 0.1
    world.want("n1")
    ready = Member("n2", world.state.nodes["n2"].incarnation)
    world.send(ev.WorkersReady(time_s=world.now_s, job="a", members=(ready,)))
    assert Timer("depart", "a") in world.state.timers
    world.never_ready.clear()
    world.send(ev.JobPaused(time_s=world.now_s, job="a"))
    world.run(0.5)
    world.send(ev.JobResumed(time_s=world.now_s, job="a"))
    world.run(1.0)
    assert [member.node for member in world.state.jobs["a"].state_holders] == ["n2"]
    world.run(5)
    assert [member.node for member in world.state.jobs["a"].state_holders] == ["n2"]


def test_a_held_node_that_no_job_wants_is_released_after_a_while(world):
    running(world, "n1", "n2")
    world.send(ev.JobCancelled(time_s=world.now_s, job="a"))
    world.run(9.9)
    assert not world.effects(ef.Release)
    world.run(0.2)
    assert {node for release in world.effects(ef.Release) for node in release.nodes} == {"n1", "n2"}
    assert world.story("n1") == ["released: no job left to run"]
    assert not world.state.nodes


def test_a_node_that_never_boots_is_released(world):
    world.never_boots.add("n1")
    world.submit("a")
    world.offer("n1")
    world.run(59)
    assert not world.effects(ef.Release)
    world.run(2)
    assert [release.nodes for release in world.effects(ef.Release)] == [("n1",)]
    assert world.story("n1") == ["no answer from its agent within 60 s: released"]
    assert not world.state.jobs["a"].nodes


def test_a_refused_claim_is_logged_and_the_node_forgotten(world):
    world.refused.add("n1")
    world.submit("a")
    world.offer("n1", "n2")
    world.until_members("a", ["n2"])
    assert world.story("n1") == ["claim refused: taken"]
    assert "n1" not in world.state.nodes


def test_a_claim_knows_the_earliest_end_of_its_nodes(world):
    world.submit("a", "2")
    world.offer("n1", until_s=500.0)
    world.offer("n2", until_s=300.0)
    world.run_until(lambda: world.effects(ef.Claim))
    assert [claim.until_s for claim in world.effects(ef.Claim)] == [300.0]


def test_release_all_releases_and_claims_nothing_until_resumed(world):
    running(world, "n1", "n2")
    world.solver_waits = True
    world.offer("n3")
    stale = world.state.version
    effects = world.send(ev.ReleaseAsked(time_s=world.now_s))
    assert set(effects[0].nodes) == {"n1", "n2"}
    assert not only(effects, ef.Solve)
    answer = Allocation(nodes={"a": 3})
    for version in (stale, world.state.version):
        assert world.send(ev.Solved(time_s=world.now_s, version=version, allocation=answer)) == []
    assert not only(world.offer("n1", "n2"), ef.Solve)
    world.run(30)
    assert not [claim for claim in world.effects(ef.Claim) if world.state.nodes[claim.nodes[0]].phase != "idle"]
    world.solver_waits = False
    world.send(ev.ClaimingResumed(time_s=world.now_s))
    world.until_size("a", 3)
    assert len(world.members("a")) == 3


def test_nothing_is_claimed_while_another_controller_may_have_the_lease(world):
    running(world, "n1", "n2")
    world.solver_waits = True
    world.offer("n3")
    stale = world.state.version
    assert not only(world.send(ev.LeaseChecked(time_s=world.now_s, certain=False)), ef.Solve)
    answer = Allocation(nodes={"a": 3})
    for version in (stale, world.state.version):
        assert world.send(ev.Solved(time_s=world.now_s, version=version, allocation=answer)) == []
    world.solver_waits = False
    world.run(30)
    assert world.members("a") == ["n1", "n2"], "what it has it keeps"
    (effects,) = [world.send(ev.NodesChanged(time_s=world.now_s, wanted=("n2",)))]
    assert only(effects, ef.Release), "the queue comes first"
    world.run(5)
    assert not [claim for claim in world.effects(ef.Claim) if "n3" in claim.nodes]
    world.send(ev.LeaseChecked(time_s=world.now_s, certain=True))
    world.until_size("a", 2)
    assert "n3" in world.members("a")


def test_the_next_controller_has_the_lease(world):
    running(world, "n1")
    world.send(ev.LeaseChecked(time_s=world.now_s, certain=False))
    world.send(ev.ControllerStarted(time_s=world.now_s))
    assert not world.state.lease_uncertain


def test_release_of_named_nodes_touches_no_other(world):
    running(world, "n1", "n2")
    effects = world.send(ev.ReleaseAsked(time_s=world.now_s, nodes=("n2", "n2", "n7")))
    assert effects[0].nodes == ("n2",)
    assert world.members("a") == ["n1"]
    assert world.state.claiming


def test_a_node_released_by_name_rests_before_it_is_claimed_again(world):
    running(world, "n1", "n2")
    rest_s = world.state.settings.rest_s
    world.send(ev.ReleaseAsked(time_s=world.now_s, nodes=("n2",)))
    world.offer("n2")
    world.run(rest_s / 2)
    assert world.members("a") == ["n1"]
    world.run(rest_s)
    assert world.members("a") == ["n1", "n2"]


def test_a_timer_of_an_earlier_claim_does_not_end_the_next_one(world):
    world.submit("a")
    world.never_boots.add("n1")
    world.offer("n1")
    world.run(40)
    world.lose("n1")
    world.offer("n1")
    world.run(40)
    assert world.state.nodes["n1"].phase == "claimed", "the limit of the first claim ended 20 s ago"
    world.run(25)
    assert "n1" not in world.state.nodes, "that of the second has ended"


def test_a_timer_of_an_earlier_hold_without_a_job_does_not_release_the_next_one(world):
    running(world, "n1")
    world.send(ev.JobCancelled(time_s=world.now_s, job="a"))
    world.run(8)
    world.want("n1")
    world.run(1)
    world.submit("b")
    world.offer("n1")
    world.until_members("b", ["n1"])
    world.run(30)
    assert world.members("b") == ["n1"]
