"""Jobs that have ended leave the state for the history, and the history when they are forgotten."""

from __future__ import annotations

import math

from scenarios import running
from world import World, job

from offcut.advisor import JobHistories
from offcut.control import Settings, State
from offcut.control.ended_jobs import outdated
from offcut.model import effects as ef
from offcut.model import events as ev


def ended(world: World, *names: str) -> None:
    """Submit these jobs and cancel them, a minute and more apart."""
    for name in names:
        world.submit(name)
        world.run(1)
        world.send(ev.JobCancelled(time_s=world.now_s, job=name))
        world.run(61)


def test_the_jobs_that_ended_first_leave_the_state_for_the_history():
    world = World(Settings(recent_jobs=2))
    ended(world, "a", "b", "c", "d")
    assert list(world.state.jobs) == list(world.state.ended) == ["c", "d"]
    assert list(world.history) == ["a", "b"]
    assert (world.history["a"].outcome, world.history["a"].reason) == ("cancelled", "cancelled by hand")
    assert world.state.submitted == 4


def test_a_job_that_ended_a_moment_ago_stays_for_reports_of_its_workers():
    world = World(Settings(recent_jobs=0))
    running(world, "n1", "n2")
    world.send(ev.JobCancelled(time_s=world.now_s, job="a"))
    world.run(5)
    world.send(ev.JobProgressed(time_s=world.now_s, job="a", generation=1, step=10, samples=160, loss=0.5))
    assert world.state.jobs["a"].phase == "cancelled"
    world.run(60)
    ended(world, "b")
    assert list(world.state.jobs) == ["b"]
    assert world.history["a"].steps == 10


def test_late_events_about_a_job_of_the_history_change_nothing():
    world = World(Settings(recent_jobs=0))
    running(world, "n1")
    member = world.member("a", "n1")
    world.send(ev.JobCancelled(time_s=world.now_s, job="a"))
    world.run(70)
    ended(world, "b")
    assert "a" not in world.state.jobs
    now_s = world.now_s
    world.send(ev.WorkerExited(time_s=now_s, job="a", member=member, outcome="left", generation=1, stable_step=3))
    world.send(ev.GenerationFormed(time_s=now_s, job="a", generation=1, took_s=1.0, step=4))
    world.send(ev.GenerationBroken(time_s=now_s, job="a", generation=1, member=member))
    world.send(ev.JobTrained(time_s=now_s, job="a", generation=1))
    world.send(ev.JobCancelled(time_s=now_s, job="a"))
    world.send(ev.JobProgressed(time_s=now_s, job="a", generation=1, step=4, samples=4, loss=0.0))
    running_worker = ev.RunningWorker("a", member.incarnation, ready=True, generation=1)
    world.send(ev.AgentReported(time_s=now_s, node="n1", workers=(running_worker,), incarnation=member.incarnation))
    assert "a" not in world.state.jobs


def test_ended_jobs_of_an_older_journal_leave_the_state_when_the_controller_starts():
    world = World(Settings(recent_jobs=1))
    state = World().state
    older = World()
    ended(older, "a", "b", "c")
    state = older.state
    state.ended, state.submitted, state.settings = {}, 0, Settings(recent_jobs=1)
    world.forget(state)
    world.run(300)
    world.send(ev.ControllerStarted(time_s=world.now_s))
    assert list(world.state.jobs) == ["c"]
    assert list(world.history) == ["a", "b"]


def test_a_job_is_forgotten_only_after_its_end():
    world = World(Settings(recent_jobs=1))
    running(world, "n1")
    ended(world, "b", "c")
    effects = world.send(ev.JobsForgotten(time_s=world.now_s, jobs=("a", "b", "c"), files=True))
    assert [(e.jobs, e.files) for e in effects if isinstance(e, ef.ForgetJobs)] == [(("b", "c"), True)]
    assert list(world.state.jobs) == ["a"]
    assert not world.history
    assert world.story("a")[-1] == "not forgotten: it has not ended"


def test_a_job_may_be_forgotten_while_its_workers_still_leave():
    for mode in ("session", "restart"):
        world = World(Settings(hold_s=1.0))
        running(world, "n1", "n2", mode=mode)
        world.send(ev.JobCancelled(time_s=world.now_s, job="a"))
        world.send(ev.JobsForgotten(time_s=world.now_s, jobs=("a",)))
        assert not world.state.jobs
        world.run(30)
        assert not world.processes
        assert not world.pilots


def test_the_number_of_a_forgotten_job_is_not_given_again():
    world = World()
    ended(world, "a", "b")
    world.send(ev.JobsForgotten(time_s=world.now_s, jobs=("a", "b")))
    world.submit("c")
    assert world.state.submitted == 3


def test_jobs_are_outdated_after_their_time():
    ends = [("a", 10.0), ("b", 100.0)]
    assert outdated(ends, Settings(keep_jobs_s=50.0), now_s=120.0) == ("a",)
    assert outdated(ends, Settings(keep_jobs_s=math.inf), now_s=1e9) == ()


def test_the_state_is_bounded_whatever_number_of_jobs_has_ended():
    world = World(Settings(recent_jobs=3))
    ended(world, *(f"j{i}" for i in range(30)))
    state = world.state
    assert len(state.jobs) == len(state.ended) == 3
    assert len(state.histories.jobs) <= 3
    assert len(world.history) == 27


def observed(histories: JobHistories, name: str, family: str) -> None:
    histories.join(name, f"family {family}")
    histories.observe(name, generation=1, size=1, rate=1.0, spread=0.01, stretches=3, settled=True)


def test_what_was_learned_of_a_job_stays_while_it_is_among_the_newest_of_its_family():
    histories = State().histories
    for i in range(40):
        observed(histories, f"j{i}", "sweep")
        histories.retire(f"j{i}")
    assert len(histories.jobs) == 16
    assert "j39" in histories.jobs
    assert histories.evidence("new", job("new").sizes, None).family == ()
    histories.join("new", "family sweep")
    assert histories.evidence("new", job("new").sizes, None).family


def test_families_are_bounded():
    histories = State().histories
    observed(histories, "lives", "first")
    for i in range(600):
        observed(histories, f"j{i}", f"f{i}")
        histories.retire(f"j{i}")
    assert len(histories.families) == len(histories.versions) == 500
    assert len(histories.jobs) == 500
    assert "family first" in histories.families
