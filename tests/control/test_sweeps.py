"""Trials of a sweep are jobs: started one first, halted and promoted, on as many nodes as there are."""

from __future__ import annotations

from typing import Any

import pytest
from test_state_machine import check_fold
from world import World, job

from offcut.control.check_state import check_state
from offcut.control.sweeps import node_s, trial_node_s
from offcut.model import effects as ef
from offcut.model import events as ev
from offcut.model.search_space import CategoricalParameter, FloatParameter, SearchSpace
from offcut.model.sweep import SchedulerChoice, Sweep

SPACE = SearchSpace(
    (
        FloatParameter(name="lr", low=1e-4, high=1.0, log=True),
        CategoricalParameter(name="act", choices=("relu", True)),
    )
)


def sweep(scheduler: str = "asha", sizes: str = "1:4", **fields: Any) -> Sweep:
    options = {"max_budget": 9.0} | fields.pop("options", {})
    return Sweep(
        id="s-1",
        name="s",
        job=job("s-1", sizes, **fields.pop("job_fields", {})),
        space=SPACE,
        scheduler=SchedulerChoice(scheduler, tuple(options.items())),
        **({"max_trials": 9} | fields),
    )


def submit(world: World, definition: Sweep) -> None:
    world.send(ev.SweepSubmitted(time_s=world.now_s, sweep=definition))


def report(world: World, number: int, budget: float, value: float) -> None:
    reports = (ev.ObjectiveReport(budget, value),)
    world.send(ev.ObjectivesRead(time_s=world.now_s, job=f"s-1.{number}", reports=reports))


def phases(world: World) -> dict[int, str]:
    return {number: trial.phase for number, trial in world.state.sweeps["s-1"].search.trials.items()}


def running_jobs(world: World) -> list[str]:
    return [job_id for job_id, state in world.state.jobs.items() if state.phase == "running"]


def test_one_trial_runs_first_and_then_as_many_as_nodes(world):
    world.offer("n1", "n2", "n3")
    submit(world, sweep())
    world.until_settled()
    assert running_jobs(world) == ["s-1.0"]
    assert world.state.jobs["s-1.0"].size == 3, "it uses the nodes of the others meanwhile"
    report(world, 0, 0.5, 1.0)
    world.until_settled()
    assert sorted(running_jobs(world)) == ["s-1.0", "s-1.1", "s-1.2"]
    world.offer("n4", "n5")
    world.until_settled()
    assert len(running_jobs(world)) == 5


def test_a_trial_has_its_parameters_as_arguments_and_in_its_environment(world):
    submit(world, sweep())
    its = world.state.jobs["s-1.0"].job
    parameters = world.state.sweeps["s-1"].search.trials[0].parameters
    assert its.command == ("train.py", f"--lr={parameters['lr']}", f"--act={parameters['act']}".replace("True", "true"))
    assert dict(its.env)["OFFCUT_MAX_BUDGET"] == "9"
    assert dict(its.env)["OFFCUT_PARAMETERS"].startswith('{"lr": ')
    assert its.family == "s-1"


def test_a_trial_halts_at_a_rung_without_nodes_and_is_promoted_with_its_state(world):
    world.offer("n1")
    submit(world, sweep())
    world.until_settled()
    for number, value in ((0, 1.0), (1, 3.0)):
        report(world, number, 1.0, value)
        assert world.state.jobs[f"s-1.{number}"].phase == "paused"
        world.until_settled()
    generation = world.state.jobs["s-1.0"].generation
    report(world, 2, 1.0, 2.0)
    # The best third of three is promoted.
    assert phases(world) == {0: "running", 1: "halted", 2: "halted"}
    world.until_settled()
    assert running_jobs(world) == ["s-1.0"]
    assert world.state.jobs["s-1.0"].generation > generation
    assert world.state.jobs["s-1.0"].job.weight == 2.0
    assert "trial 0: promoted from budget 1 to 3" in world.story("s-1")
    assert "sweep s: promoted from budget 1 to 3" in world.story("s-1.0")


def test_a_reclaim_changes_nothing_in_the_search(world):
    world.offer("n1", "n2")
    submit(world, sweep())
    world.until_settled()
    report(world, 0, 0.5, 1.0)
    world.until_settled()
    before = phases(world)
    world.want("n1", "n2")
    world.run(10)
    assert phases(world) == before == {0: "running", 1: "running"}
    assert running_jobs(world) == []
    world.offer("n1", "n2")
    world.until_settled()
    assert sorted(running_jobs(world)) == ["s-1.0", "s-1.1"]


def test_a_stopped_trial_ends_as_a_job(world):
    world.offer("n1")
    submit(world, sweep("asha-stopping"))
    world.until_settled()
    for number, value in ((0, 1.0), (0, 1.0)):
        report(world, number, 9.0, value)
    world.exit(world.member("s-1.0", "n1"), "finished")
    world.until_settled()
    report(world, 1, 1.0, 5.0)
    assert world.state.jobs["s-1.1"].phase == "cancelled"
    assert world.state.jobs["s-1.1"].reason == "stopped by its sweep: not among the best 1 of 2 at budget 1"


def test_a_trial_ends_for_the_search_when_all_its_reports_are_read(world):
    world.offer("n1")
    submit(world, sweep("none", max_trials=1))
    world.until_settled()
    world.trained("s-1.0")
    world.exit(world.member("s-1.0", "n1"), "finished")
    assert world.state.jobs["s-1.0"].phase == "finished"
    assert phases(world) == {0: "running"}
    reports = (ev.ObjectiveReport(3.0, 0.5), ev.ObjectiveReport(9.0, 0.25))
    world.send(ev.ObjectivesRead(time_s=world.now_s, job="s-1.0", reports=reports, complete=True))
    assert phases(world) == {0: "completed"}
    assert world.state.sweeps["s-1"].search.phase == "finished"
    assert world.state.sweeps["s-1"].ended_s == world.now_s
    assert world.state.sweeps["s-1"].trial_jobs == {}


def test_what_is_read_as_complete_before_the_job_ended_is_not(world):
    world.offer("n1")
    submit(world, sweep("none", max_trials=1))
    world.until_settled()
    world.send(ev.ObjectivesRead(time_s=world.now_s, job="s-1.0", complete=True))
    assert phases(world) == {0: "running"}


def test_scripts_that_fail_end_the_sweep_with_the_last_line_of_the_traceback(world):
    world.offer("n1")
    submit(world, sweep(job_fields={"max_failures": 0}))
    for number in range(3):
        world.until_members(f"s-1.{number}", ["n1"])
        world.exit(world.member(f"s-1.{number}", "n1"), "failed", "Traceback\nerror: unrecognized arguments: --lr")
        assert world.state.jobs[f"s-1.{number}"].phase == "failed"
        world.send(ev.ObjectivesRead(time_s=world.now_s, job=f"s-1.{number}", complete=True))
    assert world.state.sweeps["s-1"].search.phase == "failed"
    assert "unrecognized arguments: --lr" in world.state.sweeps["s-1"].search.reason


def test_users_pause_resume_and_cancel_a_sweep(world):
    world.offer("n1", "n2")
    submit(world, sweep())
    world.until_settled()
    report(world, 0, 0.5, 1.0)
    world.until_settled()
    world.send(ev.SweepPaused(time_s=world.now_s, sweep="s-1"))
    assert {state.phase for state in world.state.jobs.values()} == {"paused"}
    world.send(ev.SweepResumed(time_s=world.now_s, sweep="s-1"))
    world.until_settled()
    assert len(running_jobs(world)) == 2
    world.send(ev.SweepCancelled(time_s=world.now_s, sweep="s-1"))
    assert {state.phase for state in world.state.jobs.values()} == {"cancelled"}
    assert world.state.sweeps["s-1"].search.phase == "cancelled"


def test_a_restarted_controller_goes_on_with_the_same_trials(world):
    world.offer("n1", "n2")
    submit(world, sweep(order="logical", parallel=4))
    world.until_settled()
    report(world, 0, 1.0, 1.0)
    world.until_settled()
    before = phases(world)
    world.restart()
    world.run(20)
    assert phases(world) == before
    check_fold(world)
    assert check_state(world.state) == []


def test_a_suggestion_is_asked_for_and_answered(world):
    world.offer("n1")
    submit(world, sweep(suggester="optuna"))
    assert phases(world) == {0: "asked"}
    assert world.state.jobs == {}
    parameters = {"lr": 0.1, "act": "relu"}
    world.send(ev.TrialSuggested(time_s=world.now_s, sweep="s-1", trial=0, parameters=parameters))
    assert phases(world) == {0: "running"}
    assert world.state.jobs["s-1.0"].job.command == ("train.py", "--lr=0.1", "--act=relu")
    check_fold(world)


@pytest.mark.parametrize("job_id", ["s-1.7", "s-1", "", "x.1", "s-1.0.0"])
def test_reports_of_unknown_jobs_change_nothing(world, job_id):
    submit(world, sweep())
    before = phases(world)
    world.send(
        ev.ObjectivesRead(time_s=world.now_s, job=job_id, reports=(ev.ObjectiveReport(1.0, 1.0),), complete=True)
    )
    assert phases(world) == before


def test_trials_of_one_sweep_share_what_is_learned_of_their_scaling(world):
    world.offer("n1", "n2")
    submit(world, sweep())
    world.until_settled()
    report(world, 0, 0.5, 1.0)
    for number in (0, 1):
        assert "family s-1" in world.state.histories.jobs[f"s-1.{number}"].keys


PBT = {"max_budget": 4.0, "population": 2, "quantile": 0.5}


def copying(world: World) -> None:
    """Let trial 0, which is the worse one, take over the state of trial 1 at budget 1."""
    world.offer("n1", "n2")
    submit(world, sweep("pbt", "1", options=PBT, order="logical", parallel=2))
    world.until_settled()
    report(world, 0, 1.0, 2.0)
    assert world.state.jobs["s-1.0"].phase == "paused", "it waits for the other one"
    world.until_settled()
    report(world, 1, 1.0, 1.0)


def test_a_trial_goes_on_from_a_copy_of_another_ones_state(world):
    copying(world)
    jobs = world.state.jobs
    assert {job_id: state.phase for job_id, state in jobs.items()} == {
        "s-1.0": "cancelled",
        "s-1.1": "paused",
        "s-1.0-1": "paused",
    }
    assert jobs["s-1.0"].reason == "its trial goes on from the state of s-1.1"
    assert not copies_asked(world), "the members of the source save their state first"
    world.run_until(lambda: copies_asked(world))
    assert copies_asked(world) == [("s-1.0-1", ("s-1.1", "s-1.0"))]
    assert not jobs["s-1.1"].state_holders
    world.run(20)
    assert sorted(running_jobs(world)) == ["s-1.0-1", "s-1.1"]
    assert world.state.sweeps["s-1"].copies == world.state.sweeps["s-1"].held == {}
    assert "goes on from the state of s-1.1" in world.story("s-1.0-1")
    trial = world.state.sweeps["s-1"].search.trials[0]
    lr = trial.parameters["lr"]
    assert f"--lr={lr}" in jobs["s-1.0-1"].job.command
    # Its old script does not count any more, the new one does.
    report(world, 0, 2.0, 0.1)
    assert trial.last_report.budget == 1.0
    world.send(ev.ObjectivesRead(time_s=world.now_s, job="s-1.0-1", reports=(ev.ObjectiveReport(2.0, 0.5),)))
    assert (trial.last_report.budget, trial.last_report.value) == (2.0, 0.5)
    check_fold(world)


def copies_asked(world: World) -> list[tuple[str, tuple[str, ...]]]:
    found = [effect for _, effects in world.log for effect in effects if isinstance(effect, ef.CopyJobState)]
    return [(effect.job, effect.sources) for effect in found]


def test_a_reclaim_during_a_copy_changes_nothing(world):
    copying(world)
    before = phases(world)
    world.want("n1", "n2")
    world.run(10)
    world.offer("n1", "n2")
    world.run(20)
    assert phases(world) == before == {0: "running", 1: "running"}
    assert sorted(running_jobs(world)) == ["s-1.0-1", "s-1.1"]
    assert len(copies_asked(world)) == 1


def test_a_restarted_controller_asks_for_a_copy_again(world):
    copying(world)
    world.copies_fail = True
    world.run_until(lambda: copies_asked(world))
    world.run(5)
    assert world.state.jobs["s-1.0-1"].phase == world.state.jobs["s-1.1"].phase == "paused"
    world.copies_fail = False
    world.restart()
    world.run(20)
    assert sorted(running_jobs(world)) == ["s-1.0-1", "s-1.1"]
    assert len(copies_asked(world)) == 2
    check_fold(world)


@pytest.mark.parametrize("verb", [ev.SweepPaused, ev.SweepCancelled])
def test_a_sweep_may_be_paused_and_cancelled_during_a_copy(world, verb):
    copying(world)
    world.send(verb(time_s=world.now_s, sweep="s-1"))
    world.run(5)
    assert running_jobs(world) == []
    world.send(ev.SweepResumed(time_s=world.now_s, sweep="s-1"))
    world.run(20)
    if verb is ev.SweepPaused:
        assert sorted(running_jobs(world)) == ["s-1.0-1", "s-1.1"]
    else:
        assert {state.phase for state in world.state.jobs.values()} == {"cancelled"}
    assert world.state.sweeps["s-1"].held == {}


def test_a_source_that_ends_meanwhile_is_copied_too(world):
    copying(world)
    world.send(ev.JobCancelled(time_s=world.now_s, job="s-1.1"))
    world.run(20)
    assert running_jobs(world) == ["s-1.0-1"]


def test_where_no_state_was_saved_the_trial_goes_on_all_the_same(world):
    copying(world)
    world.copies_fail = True
    world.run_until(lambda: copies_asked(world))
    world.send(ev.JobStateCopied(time_s=world.now_s, job="s-1.0-1", source="s-1.0"))
    assert world.story("s-1.0-1")[-2:] == ["s-1.1 has saved no state: goes on from that of s-1.0", "resumed"]
    world.run(20)
    assert sorted(running_jobs(world)) == ["s-1.0-1", "s-1.1"]


def test_no_trial_starts_once_the_node_hours_are_used(world):
    world.offer("n1", "n2")
    submit(world, sweep("none", max_trials=50, max_node_hours=0.1))
    world.until_settled()
    report(world, 0, 0.5, 1.0)
    world.until_settled()
    state = world.state.sweeps["s-1"]
    while state.search.phase == "running":
        world.run(60)
        for job_id in running_jobs(world):
            world.trained(job_id)
            world.exit(world.state.jobs[job_id].members[0], "finished")
            ended = (ev.ObjectiveReport(9.0, 1.0),)
            world.send(ev.ObjectivesRead(time_s=world.now_s, job=job_id, reports=ended, complete=True))
        world.run(10)
    assert state.search.phase == "finished"
    used_s = node_s(world.state, state, world.now_s)
    assert 360 <= used_s <= 360 + 2 * 70
    assert used_s == pytest.approx(sum(trial_node_s(world.state, state, n, world.now_s) for n in state.search.trials))
    assert len(state.search.trials) == pytest.approx(used_s / 70, abs=2)
    world.send(ev.SweepExtended(time_s=world.now_s, sweep="s-1", max_node_hours=0.2))
    assert state.search.phase == "running"
    assert "extended: at most 50 trials, 0.2 node-hours" in world.story("s-1")
    check_fold(world)


def test_a_sweep_that_has_ended_is_forgotten_with_its_halted_trials(world):
    world.offer("n1")
    submit(world, sweep(max_trials=2, parallel=1))
    world.send(ev.SweepForgotten(time_s=world.now_s, sweep="s-1"))
    assert world.story("s-1")[-1] == "not forgotten: it has not ended"
    for number in (0, 1):
        world.until_settled()
        report(world, number, 1.0, 1.0)
    assert phases(world) == {0: "halted", 1: "halted"}
    world.run(10)
    assert [state.phase for state in world.state.jobs.values()] == ["paused", "paused"]
    effects = world.send(ev.SweepForgotten(time_s=world.now_s, sweep="s-1", files=True))
    found = [(effect.jobs, effect.files) for effect in effects if isinstance(effect, ef.ForgetJobs)]
    assert found == [(("s-1.0", "s-1.1", "s-1"), True)]
    assert world.state.sweeps == world.state.jobs == {}
    assert world.state.queue == []
    check_fold(world)


def test_a_script_that_has_ended_before_it_is_compared_may_still_take_over_a_state(world):
    """A script that is faster than its reports are read: all of them and its end come in one event."""
    world.offer("n1", "n2")
    submit(world, sweep("pbt", "1", options=PBT, parallel=2))
    world.until_settled()
    report(world, 0, 0.5, 9.0)
    world.until_settled()
    report(world, 1, 1.0, 1.0)
    world.trained("s-1.0")
    world.exit(world.member("s-1.0", world.members("s-1.0")[0]), "finished")
    reports = tuple(ev.ObjectiveReport(budget, 2.0) for budget in (1.0, 2.0, 3.0, 4.0))
    world.send(ev.ObjectivesRead(time_s=world.now_s, job="s-1.0", reports=reports, complete=True))
    assert [trial.leg for trial in world.state.sweeps["s-1"].search.trials.values()] == [1, 0]
    world.run(20)
    assert sorted(running_jobs(world)) == ["s-1.0-1", "s-1.1"]
    check_fold(world)
