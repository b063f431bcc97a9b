"""`offcut why` of a trial: its weight, what it waits for, and that halted ones hold nothing."""

from __future__ import annotations

from typing import Any

import pytest

from offcut.control import State, step
from offcut.errors import InputError
from offcut.model import Job, Sizes
from offcut.model import events as ev
from offcut.model.search_space import FloatParameter, SearchSpace
from offcut.model.sweep import SchedulerChoice, Sweep
from offcut.service.explain_trial import refuse_not_started, trial_words


def submitted(**fields: Any) -> State:
    job = Job(id="s-1", name="s", command=("t.py",), sizes=Sizes.parse("1"), weight=2.0)
    space = SearchSpace((FloatParameter(name="lr", low=0.1, high=1.0),))
    scheduler = SchedulerChoice("asha", (("max_budget", 9.0),))
    options = {"scheduler": scheduler, "order": "logical", "parallel": 3} | fields
    state = State()
    step(state, ev.SweepSubmitted(time_s=1.0, sweep=Sweep(id="s-1", name="s", job=job, space=space, **options)))
    return state


def report(state: State, number: int, value: float, budget: float = 1.0) -> None:
    reports = (ev.ObjectiveReport(budget, value),)
    step(state, ev.ObjectivesRead(time_s=2.0, job=f"s-1.{number}", reports=reports))


def words(state: State, job: str) -> str:
    return " ".join(trial_words(state, state.jobs[job]))


def test_the_first_trial_and_those_that_wait_for_it() -> None:
    state = submitted()
    assert "It runs alone until it has reported its objective" in words(state, "s-1.0")
    with pytest.raises(InputError, match=r"s-1.2 has not started: it waits until trial 0 has reported"):
        refuse_not_started(state, "s-1.2")
    for other in ("s-1.0", "s-1.99", "s-1", "x", "s-1.x", ""):
        refuse_not_started(state, other)


def test_a_trial_that_waits_for_a_suggestion() -> None:
    state = submitted(suggester="optuna")
    with pytest.raises(InputError, match="waits until its parameters are suggested"):
        refuse_not_started(state, "s-1.0")


def test_a_trial_whose_result_is_early_waits_for_the_others() -> None:
    state = submitted()
    report(state, 0, 1.0)
    report(state, 1, 3.0)
    assert words(state, "s-1.0") == (
        "It is trial 0 of s-1 and has reached no rung: so it weighs 2, which is the sweep's weight 2 times one more "
        "than its rungs. Its result at budget 1 is there early: with order 'logical' results take part in a fixed "
        "order, and it waits for the results of trial 2. It keeps its state and holds no node."
    )
    report(state, 2, 2.0)
    assert "has reached 1 rung, the last at budget 1: so it weighs 4" in words(state, "s-1.0")
    halted = words(state, "s-1.1")
    assert "It is halted at budget 1, and goes on if the scheduler asha promotes it." in halted
    assert halted.endswith("It keeps its state and holds no node.")
    step(state, ev.SweepPaused(time_s=3.0, sweep="s-1"))
    assert "Its sweep is paused; resume it with: offcut resume s-1" in words(state, "s-1.0")


def test_trials_of_a_copy() -> None:
    options = (("max_budget", 9.0), ("population", 2), ("quantile", 0.5))
    state = submitted(scheduler=SchedulerChoice("pbt", options), parallel=2)
    report(state, 0, 2.0)
    report(state, 1, 1.0)
    assert "It waits until the state of s-1.1 is copied for it." in words(state, "s-1.0-1")
    assert "It is paused until its state is copied for s-1.0-1." in words(state, "s-1.1")
    assert trial_words(state, state.jobs["s-1.0"]) == [], "it has ended"
