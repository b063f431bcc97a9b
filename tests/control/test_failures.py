"""Workers fail, die, or never become ready; generations break.

`World` boots a node in 1 s, starts a worker in 2 s and forms a generation in 0.2 s; a worker that is told to leave
needs 0.1 s.
"""

from __future__ import annotations

import pytest
from scenarios import running
from world import only

from offcut.control import failures
from offcut.model import effects as ef
from offcut.model import events as ev
from offcut.model.events import Member


def test_failing_again_and_again_at_the_same_step_ends_the_job_and_no_other(world):
    running(world, "n1", sizes="1", max_failures=2)
    world.submit("b", "1")
    world.offer("n2")
    world.until_members("b", ["n2"])
    for attempt in range(3):
        world.until_settled()
        assert world.state.jobs["a"].phase == "running"
        effects = world.exit(world.member("a", "n1"), "failed", f"Traceback\nValueError: attempt {attempt}")
        world.trainings["a"].step = 0  # no checkpoint: each time it comes as far as the first step
    assert world.state.jobs["a"].phase == "failed"
    assert world.state.jobs["a"].reason == "3 failures in a row; the last: ValueError: attempt 2"
    assert only(effects, ef.SetGeneration)[0].members == ()
    assert world.members("b") == ["n2"]
    world.run_until(lambda: "n1" not in world.state.nodes)


def test_all_ranks_failing_at_one_step_are_one_failure(world):
    running(world, "n1", "n2", "n3", max_failures=1)
    for member in world.state.jobs["a"].members:
        world.exit(member, "failed", "ValueError")
    assert world.state.jobs["a"].failures == 1
    world.until_size("a", 3)
    assert len(world.members("a")) == 3


def test_all_ranks_failing_before_their_first_report_are_one_failure(world):
    """At the first step no member has reported its generation yet."""
    world.never_forms.add("a")
    world.submit("a", max_failures=1)
    world.offer("n1", "n2", "n3")
    world.run_until(lambda: len(world.members("a")) == 3)
    for member in world.state.jobs["a"].members:
        world.exit(member, "failed", "ValueError")
    assert world.state.jobs["a"].failures == 1
    world.run_until(lambda: len(world.state.jobs["a"].members) == 3)
    for member in world.state.jobs["a"].members:
        world.exit(member, "failed", "ValueError")
    assert world.state.jobs["a"].phase == "failed"


def test_failures_with_progress_between_them_are_forgiven(world):
    running(world, "n1", sizes="1", max_failures=1)
    for _ in range(5):
        world.train("a", 10)
        world.exit(world.member("a", "n1"), "failed", "ValueError")
        assert world.state.jobs["a"].failures == 1
        world.until_settled()
        assert world.state.jobs["a"].phase == "running"


def test_failed_starts_are_forgiven_when_the_job_trains_on(world):
    """A worker that never was in a generation reports no step: the next generation that forms shows the progress."""
    running(world, "n1", max_failures=2)
    for i in range(2, 8):
        world.train("a", 10)
        world.offer(f"n{i}")
        world.until_worker(f"n{i}", "starting")
        member = Member(f"n{i}", world.state.nodes[f"n{i}"].incarnation)
        world.exit(member, "failed", "no GPU")
        world.until_size("a", i)
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
    world.until_members("a", ["n1", "n3", "n2"])
    assert world.members("a") == ["n1", "n3", "n2"]


def test_a_generation_that_breaks_with_nobody_dead_is_set_again(world):
    running(world, "n1", "n2")
    members = world.state.jobs["a"].members
    broken = ev.GenerationBroken(time_s=world.now_s, job="a", generation=1, member=members[1], detail="a peer is gone")
    assert not only(world.send(broken), ef.SetGeneration), "perhaps somebody is dead: the news may be on its way"
    world.send(broken)
    world.run_until(lambda: len(world.generations("a")) > 1)
    first, again = world.generations("a")
    assert (again.generation, again.members, again.abort) == (first.generation + 1, members, True)


def test_a_generation_that_breaks_by_a_death_is_not_set_twice(world):
    running(world, "n1", "n2")
    members = world.state.jobs["a"].members
    world.send(ev.GenerationBroken(time_s=world.now_s, job="a", generation=1, member=members[0]))
    world.exit(members[1], "lost")
    world.until_size("a", 1)
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


@pytest.mark.parametrize(("outcome", "code", "shown"), [("failed", 3, 3), ("lost", -9, 137), ("failed", None, 1)])
def test_a_failed_job_has_its_scripts_exit_code(world, outcome, code, shown):
    running(world, "n1", sizes="1", max_failures=0)
    world.exit(world.member("a", "n1"), outcome, "why", code=code)
    assert (world.state.jobs["a"].phase, world.state.jobs["a"].exit_code) == ("failed", shown)


@pytest.mark.parametrize(
    ("printed", "line"),
    [
        ("Traceback ...\n  boom()\nValueError: boom\n", "ValueError: boom"),
        ("[rank0]: torch.OutOfMemoryError: CUDA\n[rank0]:[W1122] destroy_process_group was not called\n\n", None),
        ("wandb: done\nsys.exit(3)\n", "sys.exit(3)"),
        ("\n \n", "failed"),
    ],
)
def test_the_line_that_names_the_exception_is_the_reason(printed, line):
    event = ev.WorkerExited(time_s=0.0, job="a", member=Member("n1", 1), outcome="failed", detail=printed)
    assert failures.last_line(event) == (line or "[rank0]: torch.OutOfMemoryError: CUDA")
