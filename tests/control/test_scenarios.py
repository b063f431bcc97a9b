"""What the controller does, one story per test. `World` boots a node in 1 s, starts a worker in 2 s, forms a generation
in 0.2 s; a worker that was told to leave needs 0.1 s."""

from __future__ import annotations

import pytest
from world import World, only

from offcut.control import Settings
from offcut.model import Allocation, ScalingCurve, Sizes
from offcut.model import effects as ef
from offcut.model import events as ev
from offcut.model.events import Member, Timer


@pytest.fixture
def world() -> World:
    return World()


def running(world: World, *nodes: str, sizes: str = "1:8", **fields) -> World:
    """Job `a` trains on these nodes, in this order of ranks."""
    world.submit("a", sizes, **fields)
    world.offer(*nodes)
    world.run(5)
    assert sorted(world.members("a")) == sorted(nodes)
    return world


# -- growing ----------------------------------------------------------------------------------------------------------


def test_the_first_job_claims_boots_starts_and_trains(world):
    world.submit("a")
    effects = world.offer("n1")
    assert only(effects, ef.Solve)[0].problem.nodes == 1
    world.run(5)
    assert [claim.nodes for claim in world.effects(ef.Claim)] == [("n1",)]
    assert [(start.job, start.members) for start in world.effects(ef.StartWorkers)] == [("a", (Member("n1", 1),))]
    (first,) = world.generations("a")
    assert (first.generation, first.members, first.previous, first.abort) == (1, (Member("n1", 1),), (), False)
    assert world.state.jobs["a"].phase == "running"
    assert world.story("a")[-1] == "size 1 after 200 ms, at step 1"


def test_it_grows_when_a_node_comes_and_keeps_training_meanwhile(world):
    running(world, "n1")
    world.offer("n2")
    world.run(2.5)
    assert world.members("a") == ["n1"], "the newcomer boots beside the training"
    world.run(2.5)
    assert world.members("a") == ["n1", "n2"]
    assert [generation.abort for generation in world.generations("a")] == [False, False]


def test_joiners_come_after_members_in_rank_order(world):
    running(world, "n5")
    world.offer("n1", "n9")
    world.run(5)
    assert world.members("a")[0] == "n5"
    world.offer("n0")
    world.run(5)
    assert world.members("a")[0] == "n5"
    assert world.members("a")[3] == "n0"


def test_the_join_window_lets_workers_that_are_nearly_ready_join_together(world):
    world.submit("a")
    world.never_ready.update({"n1", "n2", "n3"})
    world.offer("n1", "n2", "n3")
    world.run(3.5)
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
    world.run(3.5)
    ready = Member("n2", world.state.nodes["n2"].incarnation)
    world.send(ev.WorkersReady(time_s=world.now_s, job="a", members=(ready,)))
    world.want("n2", "n3")
    world.run(20)
    world.offer("n4", "n5")
    world.run(3.5)
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
    world.run(5)
    assert len(world.generations("a")) == 1
    assert len(world.members("a")) == 3


def assert_older_is_abandoned(effects):
    """The newest generation stands; nobody waits for what is in flight under the one before."""
    assert not only(effects, ef.SetGeneration)
    (older,) = only(effects, ef.AbandonOlderGenerations)
    assert {member.node for member in older.members} >= {"n1", "n3"}


# -- giving back ------------------------------------------------------------------------------------------------------


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


def test_a_step_that_takes_long_is_not_broken_by_old_news(world):
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


def test_a_wanted_node_that_vanishes_after_the_others_went_on_disturbs_nobody(world):
    running(world, "n1", "n2", "n3")
    world.leave_s = 1000.0
    world.want("n2")
    world.run(1)
    world.lose("n2")
    world.run(5)
    assert [len(generation.members) for generation in world.generations("a")] == [3, 2]


def test_a_higher_priority_is_served_first(world):
    world.submit("a", "1:4")
    world.submit("b", "1:4", priority=1)
    world.offer("n1", "n2", "n3", "n4", "n5")
    world.run(5)
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
    world.run(5)
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
    world.run(5)
    assert world.members("b") == [stop.members[0].node]


def test_the_last_node_is_wanted_and_the_job_waits(world):
    running(world, "n1")
    (generation,) = only(world.want("n1"), ef.SetGeneration)
    assert generation.members == ()
    assert [member.node for member in generation.previous] == ["n1"]
    assert world.state.jobs["a"].phase == "waiting"
    world.run(20)
    world.offer("n2")
    world.run(5)
    assert world.members("a") == ["n2"]


def test_a_successor_that_is_ready_waits_for_the_exit_of_who_has_the_state(world):
    running(world, "n1", sizes="1:2")
    world.never_forms.add("a")
    world.offer("n2")
    world.run(3.1)
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
    assert event.member.node == "n1"
    assert event.time_s == pytest.approx(before_s + 0.8)
    assert [member.node for member in only(effects, ef.SetGeneration)[0].members] == ["n2"]
    assert Timer("depart", "a") not in world.state.timers


def test_nobody_waits_for_ever_for_an_exit_that_is_never_reported(world):
    running(world, "n1", sizes="1:2")
    world.offer("n2")
    world.never_ready.add("n2")
    world.run(3.1)
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
    world.run(3.1)
    (generation,) = only(world.lose("n1"), ef.SetGeneration)
    assert [member.node for member in generation.members] == ["n2"]
    assert generation.abort


def test_an_old_departure_does_not_disturb_a_job_that_trains_again(world):
    """Its last holder left while the job was paused: the timer that was set before means nothing any more."""
    running(world, "n1", sizes="1:2")
    world.offer("n2")
    world.never_ready.add("n2")
    world.run(3.1)
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


def test_a_refused_claim_is_told_and_forgotten(world):
    world.refused.add("n1")
    world.submit("a")
    world.offer("n1", "n2")
    world.run(5)
    assert world.members("a") == ["n2"]
    assert world.story("n1") == ["claim refused: taken"]
    assert "n1" not in world.state.nodes


def test_a_claim_knows_the_earliest_end_of_its_nodes(world):
    world.submit("a", "2")
    world.offer("n1", until_s=500.0)
    world.offer("n2", until_s=300.0)
    world.run(1)
    assert [claim.until_s for claim in world.effects(ef.Claim)] == [300.0]


def test_release_all_hands_back_and_claims_nothing_until_resumed(world):
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
    world.run(5)
    assert len(world.members("a")) == 3


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


# -- failures ---------------------------------------------------------------------------------------------------------


def test_failing_again_and_again_at_the_same_step_ends_the_job_and_no_other(world):
    running(world, "n1", sizes="1", max_failures=2)
    world.submit("b", "1")
    world.offer("n2")
    world.run(5)
    for attempt in range(3):
        world.run(20)
        assert world.state.jobs["a"].phase == "running"
        effects = world.exit(world.member("a", "n1"), "failed", f"Traceback\nValueError: attempt {attempt}")
        world.trainings["a"].step = 0  # no checkpoint: each time it comes as far as the first step
    assert world.state.jobs["a"].phase == "failed"
    assert world.state.jobs["a"].reason == "3 failures in a row; the last: ValueError: attempt 2"
    assert only(effects, ef.SetGeneration)[0].members == ()
    assert world.members("b") == ["n2"]
    world.run(20)
    assert "n1" not in world.state.nodes


def test_all_ranks_failing_at_one_step_are_one_failure(world):
    running(world, "n1", "n2", "n3", max_failures=1)
    for member in world.state.jobs["a"].members:
        world.exit(member, "failed", "ValueError")
    assert world.state.jobs["a"].failures == 1
    world.run(5)
    assert len(world.members("a")) == 3


def test_all_ranks_failing_before_their_first_report_are_one_failure(world):
    """At the first step nobody has told its generation yet."""
    world.never_forms.add("a")
    running(world, "n1", "n2", "n3", max_failures=1)
    for member in world.state.jobs["a"].members:
        world.exit(member, "failed", "ValueError")
    assert world.state.jobs["a"].failures == 1
    world.run(5)
    for member in world.state.jobs["a"].members:
        world.exit(member, "failed", "ValueError")
    assert world.state.jobs["a"].phase == "failed"


def test_failures_with_progress_between_them_are_forgiven(world):
    running(world, "n1", sizes="1", max_failures=1)
    for _ in range(5):
        world.train("a", 10)
        world.exit(world.member("a", "n1"), "failed", "ValueError")
        assert world.state.jobs["a"].failures == 1
        world.run(10)
        assert world.state.jobs["a"].phase == "running"


def test_failed_starts_are_forgiven_when_the_job_trains_on(world):
    """A worker that never was in a generation reports no step: the next generation that forms shows the progress."""
    running(world, "n1", max_failures=2)
    for i in range(2, 8):
        world.train("a", 10)
        world.offer(f"n{i}")
        world.run(1.5)
        member = Member(f"n{i}", world.state.nodes[f"n{i}"].incarnation)
        world.exit(member, "failed", "no GPU")
        world.run(5)
        assert len(world.members("a")) == i
    assert world.state.jobs["a"].failures == 0


def test_restarts_wait_longer_each_time_but_never_absurdly_long(world):
    running(world, "n1", sizes="1", max_failures=2000)
    waits = []
    for _ in range(9):
        effects = world.exit(world.member("a", "n1"), "failed", "ValueError")
        world.trainings["a"].step = 0
        (timer,) = [timer for timer in only(effects, ef.SetTimer) if timer.timer.purpose == "retry"]
        waits.append(timer.at_s - world.now_s)
        world.run(waits[-1] + 3)
    assert waits == pytest.approx([0.5, 1, 2, 4, 8, 16, 32, 64, 64])
    world.state.jobs["a"].failures = 1999
    world.exit(world.member("a", "n1"), "failed", "ValueError")


def test_a_killed_member_is_replaced_while_the_others_train(world):
    running(world, "n1", "n2", "n3")
    killed = world.member("a", "n2")
    effects = world.exit(killed, "lost", "killed by signal 9")
    (generation,) = only(effects, ef.SetGeneration)
    assert [member.node for member in generation.members] == ["n1", "n3"]
    assert generation.abort, "nobody waits for it"
    (start,) = only(effects, ef.StartWorkers)
    assert start.members[0].node == "n2"
    assert start.members[0].incarnation > killed.incarnation
    world.run(5)
    assert world.members("a") == ["n1", "n3", "n2"]


def test_a_generation_that_breaks_with_nobody_dead_is_set_anew(world):
    running(world, "n1", "n2")
    members = world.state.jobs["a"].members
    broken = ev.GenerationBroken(time_s=world.now_s, job="a", generation=1, member=members[1], detail="a peer is gone")
    assert not only(world.send(broken), ef.SetGeneration), "perhaps somebody is dead: the news may be on its way"
    world.send(broken)
    world.run(1.1)
    first, again = world.generations("a")
    assert (again.generation, again.members, again.abort) == (first.generation + 1, members, True)


def test_a_generation_that_breaks_by_a_death_is_not_set_twice(world):
    running(world, "n1", "n2")
    members = world.state.jobs["a"].members
    world.send(ev.GenerationBroken(time_s=world.now_s, job="a", generation=1, member=members[0]))
    world.exit(members[1], "lost")
    world.run(1.5)
    assert [len(generation.members) for generation in world.generations("a")] == [2, 1]


def test_a_worker_that_is_never_ready_is_ended_and_counts_as_a_failure(world):
    world.never_ready.add("n1")
    world.submit("a", max_failures=1)
    world.offer("n1")
    world.run(182)
    (stop,) = world.effects(ef.StopWorkers)
    assert stop.members == (Member("n1", 1),)
    assert world.state.jobs["a"].failures == 1
    world.run(182)
    assert world.state.jobs["a"].reason == (
        "2 failures in a row; the last: not ready within 180 s: does the script reach session.epochs()?"
    )


# -- the end ----------------------------------------------------------------------------------------------------------


def test_a_trained_job_keeps_its_members_until_the_first_has_ended(world):
    running(world, "n1", "n2")
    first, second = world.state.jobs["a"].members
    world.solver_waits = True
    world.offer("n3")
    world.trained("a")
    assert world.state.jobs["a"].phase == "finishing"
    assert world.state.open_problem is None, "no job is left to allocate for"
    assert not only(world.exit(second, "finished"), ef.SetGeneration)
    assert world.state.jobs["a"].phase == "finishing"
    world.exit(first, "finished")
    assert world.state.jobs["a"].phase == "finished"
    assert world.state.jobs["a"].reason == "its script came to its end"
    assert list(world.state.free) == ["n3", second.node, first.node]


def test_joiners_that_were_on_their_way_are_sent_home_when_it_has_trained(world):
    running(world, "n1")
    world.never_forms.add("a")
    world.offer("n2", "n3")
    world.never_ready.add("n3")
    world.run(4)
    assert world.members("a") == ["n1", "n2"], "generation 2 is set; n1 came to the end before it switched"
    effects = world.trained("a")
    assert world.members("a") == ["n1"]
    assert {member.node for stop in only(effects, ef.StopWorkers) for member in stop.members} == {"n2", "n3"}
    world.exit(world.member("a", "n1"), "finished")
    assert world.state.jobs["a"].phase == "finished"


def test_the_first_member_is_lost_before_its_script_has_ended_and_the_end_runs_again(world):
    running(world, "n1", "n2")
    first = world.state.jobs["a"].members[0]
    world.trained("a")
    effects = world.lose(first.node)
    assert world.state.jobs["a"].phase == "waiting"
    assert only(effects, ef.SetGeneration)[0].members == ()
    world.run(10)
    assert world.state.jobs["a"].phase == "running"
    assert first.node not in world.members("a")
    world.trained("a")
    world.exit(world.state.jobs["a"].members[0], "finished")
    assert world.state.jobs["a"].phase == "finished"


def test_an_end_that_kills_its_process_each_time_is_not_run_for_ever(world):
    running(world, "n1", sizes="1", max_failures=2)
    world.train("a", 100)
    for _ in range(3):
        step = world.trainings["a"].step
        world.trained("a")
        world.exit(world.member("a", "n1"), "lost", "killed by signal 9")
        world.trainings["a"].step = step - 1  # nothing is left to train
        world.run(20)
    assert world.state.jobs["a"].phase == "failed"
    assert world.state.jobs["a"].reason == "3 failures in a row; the last: killed by signal 9"


def test_a_script_that_fails_at_its_end_fails_the_job(world):
    running(world, "n1")
    world.trained("a")
    world.exit(world.member("a", "n1"), "failed", "disk full")
    assert world.state.jobs["a"].reason == "its script failed after training: disk full"


def test_an_exit_may_come_before_the_word_that_the_job_has_trained(world):
    running(world, "n1", "n2")
    first, second = world.state.jobs["a"].members
    world.exit(second, "finished")
    assert world.state.jobs["a"].phase == "finishing"
    world.exit(first, "finished")
    assert world.state.jobs["a"].phase == "finished"


def test_the_first_member_leaves_unheard_and_the_others_end_does_not_count(world):
    """Rank 0 does what is done once. It was taken away while all ran their end."""
    running(world, "n1", "n2")
    first, second = world.state.jobs["a"].members
    world.never_forms.add("a")
    world.want(first.node)
    world.exit(second, "finished")
    assert world.state.jobs["a"].phase == "waiting", "its script runs its end again"
    world.never_forms.clear()
    world.run(10)
    assert world.state.jobs["a"].phase == "running"


def test_old_news_of_a_trained_generation_is_ignored(world):
    running(world, "n1")
    world.offer("n2")
    world.run(5)
    assert world.state.jobs["a"].formed_generation == 2
    for generation in (1, 7):
        assert world.send(ev.JobTrained(time_s=world.now_s, job="a", generation=generation)) == []
    assert world.state.jobs["a"].phase == "running"


def test_a_script_that_does_not_come_to_its_end_is_ended(world):
    running(world, "n1")
    world.trained("a")
    limit_s = world.state.jobs["a"].job.hang_limit_s
    world.run(limit_s - 1)
    assert world.state.jobs["a"].phase == "finishing"
    world.run(2)
    assert world.state.jobs["a"].phase == "failed", "nobody knows what it had still to save"
    assert world.state.jobs["a"].reason.startswith("ended while finishing (finish_limit_s): it has trained, but")


def test_a_job_says_how_long_its_script_may_take_to_its_end(world):
    world.submit("a", "1:8", finish_limit_s=7.0)
    world.offer("n1")
    world.run(5)
    world.trained("a")
    world.run(6)
    assert world.state.jobs["a"].phase == "finishing"
    world.run(2)
    assert "its script still ran 7 s after its last step" in world.state.jobs["a"].reason


def test_a_node_whose_worker_left_by_itself_is_nobodys(world):
    world.submit("a", "1:4")
    world.submit("b", "1:4")
    world.offer("n1", "n2", "n3")
    world.run(5)
    state = world.state
    member = state.jobs["a"].members[-1]
    before = {name: dict(state.jobs[name].nodes) for name in ("a", "b")}
    world.exit(member, "left")
    assert state.nodes[member.node].phase == "leaving"
    assert member.node not in state.free
    world.run(5)
    assert state.nodes[member.node].job is None
    assert state.open_problem is None or state.open_problem.nodes == 2
    assert set(state.jobs["b"].nodes) <= set(before["b"])
    world.want(member.node)
    assert member.node not in state.nodes
    world.run(60)
    assert member.node not in state.nodes


def test_a_node_that_the_queue_did_not_want_after_all_is_used_again(world):
    running(world, "n1", "n2")
    member = world.state.jobs["a"].members[-1]
    world.exit(member, "left")
    world.run(world.state.settings.leaving_limit_s - 1)
    assert world.state.nodes[member.node].phase == "leaving"
    assert world.state.jobs["a"].size == 1
    world.run(10)
    assert world.state.jobs["a"].size == 2


def test_an_agent_that_reports_from_a_node_that_it_leaves_gets_no_work(world):
    running(world, "n1", "n2")
    member = world.state.jobs["a"].members[-1]
    world.exit(member, "left")
    world.send(ev.AgentReported(time_s=world.now_s, node=member.node, workers=()))
    assert world.state.nodes[member.node].phase == "leaving"


def test_what_a_job_says_of_its_end_is_text(world):
    world.submit("a", "1:8", max_failures=0)
    world.offer("n1")
    world.run(5)
    effects = world.exit(
        world.state.jobs["a"].members[0], "failed", "\x1b]0;t\x07[/x] OSError: \u202e\ud800 \x9b2J é 漢"
    )
    said = [effect.text for effect in effects if isinstance(effect, ef.WriteLog)] + [world.state.jobs["a"].reason]
    assert any("[/x] OSError: " in text and "é 漢" in text for text in said)
    assert all(text.isprintable() for text in said)


# -- users ------------------------------------------------------------------------------------------------------------


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
    world.run(5)
    assert len(world.members("a")) == 2
    assert [generation.generation for generation in world.generations("a")] == [1, 2, 3]


def test_a_cancelled_job_frees_its_nodes_for_the_next(world):
    running(world, "n1", sizes="1")
    world.submit("b", "1")
    world.run(1)
    assert not world.state.jobs["b"].nodes
    world.send(ev.JobCancelled(time_s=world.now_s, job="a"))
    world.run(5)
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


def test_larger_sizes_let_a_job_grow_into_idle_nodes(world):
    running(world, "n1", sizes="1")
    world.offer("n2", "n3")
    world.run(5)
    assert len(world.members("a")) == 1
    world.send(ev.JobChanged(time_s=world.now_s, job="a", sizes=Sizes.parse("1:8"), weight=2.0))
    world.run(5)
    assert len(world.members("a")) == 3
    assert world.state.jobs["a"].job.weight == 2.0


def test_sizes_beyond_the_curve_are_refused(world):
    running(world, "n1", sizes="1:2", curve=ScalingCurve((1, 2), (1.0, 1.9)))
    world.send(ev.JobChanged(time_s=world.now_s, job="a", sizes=Sizes.parse("4:8")))
    assert world.state.jobs["a"].job.sizes == Sizes((1, 2))
    assert world.story("a")[-1] == "not changed: sizes 4:8 lie outside its curve, which ends at 2"


def test_a_job_with_sizes_beyond_its_curve_waits_and_harms_nobody(world):
    world.submit("a", "4", curve=ScalingCurve((1, 2), (1.0, 1.9)))
    world.submit("b", "1:8")
    world.offer("n1", "n2", "n3", "n4", "n5")
    world.run(5)
    assert world.state.jobs["a"].phase == "waiting"
    assert len(world.members("b")) == 5


# -- the solver -------------------------------------------------------------------------------------------------------


def test_a_stale_answer_changes_nothing(world):
    world.solver_waits = True
    world.submit("a")
    world.offer("n1")
    old = world.questions[-1]
    world.offer("n2")
    assert world.answer(old) == []
    assert world.state.open_problem is not None
    assert only(world.answer(world.questions[-1]), ef.Claim)
    assert world.answer(world.questions[-1]) == [], "an answer counts once"


def test_a_slow_solver_delays_no_release(world):
    running(world, "n1", "n2")
    world.solver_waits = True
    world.offer("n3")
    assert only(world.want("n1"), ef.Release)
    assert world.members("a") == ["n2"]


def test_a_failed_solve_leaves_everybody_what_they_have(world):
    running(world, "n1")
    world.solver_waits = True
    world.offer("n2")
    world.send(ev.SolveFailed(time_s=world.now_s, version=world.state.version, reason="out of memory"))
    assert world.members("a") == ["n1"]
    assert world.story("allocation") == ["not solved: out of memory; every job keeps the nodes that it has"]


def test_a_failed_solve_is_asked_again(world):
    running(world, "n1")
    world.solver_waits = True
    world.offer("n2")
    world.send(ev.SolveFailed(time_s=world.now_s, version=world.state.version, reason="out of memory"))
    world.solver_waits = False
    world.run(world.state.settings.solve_again_s + 5)
    assert world.members("a") == ["n1", "n2"]


@pytest.mark.parametrize(
    ("counts", "fault"),
    [
        ({"a": 7}, "7 nodes given out, but there are 3"),
        ({"a": -1}, "-1 is no size of a"),
        ({"a": 2, "b": 3}, "3 is no size of b"),
    ],
)
def test_an_answer_that_cannot_be_carried_out_is_refused_with_a_reason(world, counts, fault):
    running(world, "n1")
    world.solver_waits = True
    world.submit("b", "1,2")
    world.offer("n2", "n3")
    effects = world.give(**counts)
    assert [tell.text for tell in effects] == [f"answer refused: {fault}; every job keeps the nodes that it has"]
    assert world.state.open_problem is None
    assert world.state.decision is None or world.state.decision.version < world.state.version


def test_a_late_answer_is_carried_out_while_it_is_still_allowed_and_the_newer_problem_is_asked_anew(world):
    world.solver_waits = True
    world.submit("a")
    world.offer("n1")
    old = world.questions[-1]
    world.offer("n2")
    late = ev.Solved(time_s=world.now_s, version=old.version, allocation=Allocation(nodes={"a": 1}), late=True)
    effects = world.send(late)
    assert only(effects, ef.Claim)[0].nodes == ("n1",)
    (solve,) = only(effects, ef.Solve)
    assert solve.version == world.state.version
    assert solve.problem.nodes == 2
    assert not world.state.decision.allocation.proven
    assert only(world.answer(solve), ef.Claim)


def test_a_late_answer_that_does_not_fit_any_more_is_dropped(world):
    world.solver_waits = True
    world.submit("a")
    world.offer("n1", "n2")
    old = world.questions[-1]
    world.lose("n2")
    asked = world.state.open_problem
    late = ev.Solved(time_s=world.now_s, version=old.version, allocation=Allocation(nodes={"a": 2}), late=True)
    assert world.send(late) == []
    assert world.state.open_problem is asked


def test_a_greedy_answer_in_the_solver_s_place_is_told_and_the_solver_is_asked_again_later_each_time(world):
    world.solver_waits = True
    world.submit("a")
    world.offer("n1")
    waits = []
    for _ in range(3):
        world.send(
            ev.Solved(
                time_s=world.now_s,
                version=world.state.version,
                allocation=Allocation(nodes={"a": 1}, proven=False, standin="The solver: it hung."),
            )
        )
        waits.append(world.state.timers[Timer("solve_again")] - world.now_s)
        world.run(waits[-1] + 1)
        assert world.state.open_problem is not None
    again_s = world.state.settings.solve_again_s
    assert waits == [again_s, 2 * again_s, 4 * again_s]
    assert "The solver: it hung. A greedy answer was taken" in world.story("allocation")[0]
    assert world.members("a") == ["n1"]
    world.answer(world.questions[-1])
    assert world.state.standin_answers == 0


# -- agents that come back --------------------------------------------------------------------------------------------


def report(world: World, node: str, *workers: ev.RunningWorker) -> list[ef.Effect]:
    return world.send(ev.AgentReported(time_s=world.now_s, node=node, workers=workers))


def test_an_agent_that_runs_what_it_should_changes_nothing(world):
    running(world, "n1")
    assert report(world, "n1", ev.RunningWorker("a", 1, True)) == []


def test_a_stranger_is_sent_home(world):
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
    world.run(5)
    assert world.members("a") == ["n1", "n2"]


def test_an_agent_that_lost_the_first_member_of_a_finishing_job(world):
    running(world, "n1", "n2")
    first = world.state.jobs["a"].members[0]
    world.trained("a")
    del world.processes[first]
    assert not only(report(world, first.node), ef.StartWorkers)
    assert world.state.jobs["a"].phase == "waiting", "its script runs its end again"


def test_an_agent_that_runs_too_much_is_told(world):
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
    world.run(5)
    assert only(report(world, "n1", ev.RunningWorker("a", 1, True)), ef.SetGeneration)


def test_nobody_waits_for_a_leaving_member_that_its_agent_does_not_know_of(world):
    """It was told to go, and ended unheard while the agent's line was cut."""
    world.submit("a", "1:2")
    world.offer("n1", "n2")
    world.run(5)
    world.leave_s = 100.0
    world.send(ev.JobPaused(time_s=world.now_s, job="a"))
    assert len(world.state.jobs["a"].state_holders) == 2
    for node in ("n1", "n2"):
        world.processes = {member: p for member, p in world.processes.items() if member.node != node}
        world.send(ev.AgentReported(time_s=world.now_s, node=node, workers=()))
    assert world.state.jobs["a"].state_holders == ()


# -- settings ---------------------------------------------------------------------------------------------------------


def test_settings_change_how_long_things_may_take():
    world = World(Settings(hold_s=1.0, boot_limit_s=0.5))
    world.submit("a")
    world.offer("n1")
    world.run(0.6)
    assert world.effects(ef.Release), "it needs 1 s to boot"
