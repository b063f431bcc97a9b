"""A job has trained, and its script comes to its end.

`World` boots a node in 1 s, starts a worker in 2 s and forms a generation in 0.2 s; a worker that is told to leave
needs 0.1 s.
"""

from __future__ import annotations

from scenarios import running
from world import only

from offcut.model import effects as ef
from offcut.model import events as ev


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
    assert world.state.jobs["a"].exit_code == 0
    assert list(world.state.free) == ["n3", second.node, first.node]


def test_joiners_that_were_starting_are_stopped_when_the_job_has_trained(world):
    running(world, "n1")
    world.never_forms.add("a")
    world.offer("n2", "n3")
    world.never_ready.add("n3")
    world.run_until(lambda: world.members("a") == ["n1", "n2"])
    assert world.state.jobs["a"].generation == 2, "generation 2 is set; n1 came to the end before it switched"
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
    world.until_settled()
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
    world.exit(world.member("a", "n1"), "failed", "Traceback\ndisk full", code=4)
    assert world.state.jobs["a"].reason == "its script failed after training: disk full"
    assert world.state.jobs["a"].exit_code == 4


def test_an_exit_may_come_before_the_event_that_the_job_has_trained(world):
    running(world, "n1", "n2")
    first, second = world.state.jobs["a"].members
    world.exit(second, "finished")
    assert world.state.jobs["a"].phase == "finishing"
    world.exit(first, "finished")
    assert world.state.jobs["a"].phase == "finished"


def test_the_end_of_the_others_does_not_count_if_the_first_member_left_unreported(world):
    """Rank 0 does what is done once. It was taken away while all ran their end."""
    running(world, "n1", "n2")
    first, second = world.state.jobs["a"].members
    world.never_forms.add("a")
    world.want(first.node)
    world.exit(second, "finished")
    assert world.state.jobs["a"].phase == "waiting", "its script runs its end again"
    world.never_forms.clear()
    world.run_until(lambda: world.state.jobs["a"].phase == "running")


def test_a_late_event_about_a_trained_generation_is_ignored(world):
    running(world, "n1")
    world.offer("n2")
    world.run_until(lambda: world.state.jobs["a"].formed_generation == 2)
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
    world.until_members("a", ["n1"])
    world.trained("a")
    world.run(6)
    assert world.state.jobs["a"].phase == "finishing"
    world.run(2)
    assert "its script still ran 7 s after its last step" in world.state.jobs["a"].reason


def test_a_node_whose_worker_left_by_itself_has_no_job(world):
    world.submit("a", "1:4")
    world.submit("b", "1:4")
    world.offer("n1", "n2", "n3")
    world.until_settled()
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
    world.until_size("a", 2)


def test_an_agent_that_reports_from_a_node_that_it_leaves_gets_no_work(world):
    running(world, "n1", "n2")
    member = world.state.jobs["a"].members[-1]
    world.exit(member, "left")
    world.send(ev.AgentReported(time_s=world.now_s, node=member.node, workers=()))
    assert world.state.nodes[member.node].phase == "leaving"


def test_the_message_of_a_failed_job_is_plain_text(world):
    world.submit("a", "1:8", max_failures=0)
    world.offer("n1")
    world.until_members("a", ["n1"])
    effects = world.exit(
        world.state.jobs["a"].members[0], "failed", "\x1b]0;t\x07[/x] OSError: \u202e\ud800 \x9b2J é 漢"
    )
    said = [effect.text for effect in effects if isinstance(effect, ef.WriteLog)] + [world.state.jobs["a"].reason]
    assert any("[/x] OSError: " in text and "é 漢" in text for text in said)
    assert all(text.isprintable() for text in said)
