"""Schedulers in users' files: their answers are events, and give the same decisions as the scheduler itself."""

from __future__ import annotations

import copy
import re
from typing import Any

import pytest
from executor import SCHEDULERS, Executor, sweep_of
from hypothesis import given, settings
from hypothesis import strategies as st

from offcut.model.sweep import SchedulerTraits, Sweep
from offcut.search import SearchState, begin, step
from offcut.search import events as ev
from offcut.search.schedulers.base import Exploit, Halt, Resume, StartNew
from offcut.search.schedulers.load import load
from offcut.search.user_scheduler import answers_for


def as_users(sweep: Sweep) -> Sweep:
    """Return the sweep with its scheduler as one of a user's file."""
    from dataclasses import replace

    scheduler = load(sweep.scheduler)
    return replace(sweep, scheduler_traits=SchedulerTraits(scheduler.max_budget, scheduler.waits_at_rungs))


def waits(state: SearchState) -> bool:
    return state.phase == "running" and state.revision > state.answered


def asked(state: SearchState, scheduler: Any = None) -> ev.SchedulerAnswered:
    """Ask the scheduler as the process does, with a copy of the state."""
    traits = state.sweep.scheduler_traits
    assert traits is not None
    answers = answers_for(copy.deepcopy(state), scheduler or load(state.sweep.scheduler), traits)
    return ev.SchedulerAnswered(state.revision, answers)


class Asking(Executor):
    """An executor whose search waits for its scheduler. Answers come late: several events may come before."""

    def answer_scheduler(self) -> None:
        if waits(self.state):
            if self.random.random() < 0.5:
                question = copy.deepcopy(self.state)
                for _ in range(self.random.randrange(3)):
                    super().tick()
                self.tell(asked(question))
            elif self.random.random() < 0.1:
                self.tell(asked(self.state))

    def tick(self) -> None:
        super().tick()
        self.answer_scheduler()


@settings(max_examples=10, deadline=None)
@given(
    scheduler=st.sampled_from(sorted(SCHEDULERS)),
    order=st.sampled_from(["arrival", "logical"]),
    seed=st.integers(0, 10**6),
    stops=st.sets(st.integers(1, 200), max_size=6),
)
def test_no_trial_is_lost_or_run_twice_while_answers_come_late(
    scheduler: str, order: str, seed: int, stops: set[int]
) -> None:
    sweep = as_users(sweep_of(scheduler, **SCHEDULERS[scheduler], max_trials=20, order=order, parallel=6, seed=seed))
    executor = Asking(sweep, nodes=6, seed=seed, reclaim=0.1)
    for tick in range(5000):
        if tick in stops:
            executor.restart()  # compares the state with the fold of the journal
        if executor.state.phase != "running":
            break
        executor.tick()
    assert executor.state.phase == "finished"
    assert set(executor.started) == set(executor.state.trials)


@pytest.mark.parametrize("scheduler", ["asha", "hyperband", "pbt"])
def test_decisions_are_those_of_the_scheduler_itself(scheduler: str) -> None:
    sweep = sweep_of(scheduler, **SCHEDULERS[scheduler], max_trials=20, order="logical", parallel=4, seed=5)
    own = Executor(sweep, nodes=4, seed=1).run()
    users = Asking(as_users(sweep), nodes=4, seed=2).run()
    if scheduler != "pbt":  # what is copied depends on how far the source is
        assert users.decisions() == own.decisions()


class Wrong:
    """A scheduler with one wrong answer."""

    max_budget = 9.0
    waits_at_rungs = False

    def __init__(self, **answers: Any) -> None:
        self.answers = answers

    def next_rung(self, trial: Any, budget: float) -> Any:
        return self.answers.get("next_rung", 9.0 if budget else 1.0)

    def decide(self, view: Any, trial: Any) -> Any:
        return self.answers.get("decide", Halt())

    def next_trial(self, view: Any) -> Any:
        return self.answers.get("next_trial", StartNew()) if view.trials else StartNew()


@pytest.mark.parametrize(
    ("answers", "told"),
    [
        ({"next_rung": float("nan")}, "next_rung returned nan for trial"),
        ({"next_rung": -1.0}, "next_rung returned -1.0 for a trial at budget 0"),
        ({"next_rung": "x"}, "next_rung returned 'x' for trial"),
        ({"next_rung": True}, "next_rung returned True"),
        ({"decide": None}, "decide returned None, which is not Continue"),
        ({"decide": Exploit(99, {})}, "decide let trial 0 go on from trial 99, which has no result"),
        ({"next_trial": Resume(99)}, "next_trial resumed trial 99, which does not exist"),
        ({"next_trial": Resume(0)}, "next_trial resumed trial 0, which is running"),
        ({"next_trial": "more"}, "next_trial returned 'more'"),
        ({"next_trial": StartNew(parameters={"lr": 5.0})}, "parameters that are not in the search space: lr"),
        ({"next_trial": StartNew(parent=7)}, "trial 7 as a parent, which does not exist"),
    ],
)
def test_a_wrong_answer_is_told_and_changes_nothing(answers: dict[str, Any], told: str) -> None:
    state, _ = begin(as_users(sweep_of("asha", max_budget=9.0, max_trials=9, parallel=4)), slots=4)
    scheduler = Wrong(**answers)

    def decide() -> None:
        for _ in range(3):
            step(state, asked(state, scheduler))
            step(state, ev.TrialReported(0, 1.0, 1.0))

    with pytest.raises(ValueError, match=re.escape(told)):
        decide()


def test_a_scheduler_that_fails_pauses_the_sweep_until_it_is_resumed() -> None:
    state, _ = begin(as_users(sweep_of("asha", max_budget=9.0, max_trials=3, parallel=1)), slots=1)
    step(state, asked(state))
    step(state, ev.TrialReported(0, 1.0, 1.0))
    before = copy.deepcopy(state.trials)
    effects = step(state, ev.SchedulerFailed("the scheduler mine.py failed (line 3): KeyError: 7"))
    assert (state.phase, state.reason) == ("paused", "the scheduler mine.py failed (line 3): KeyError: 7")
    assert ev.HaltTrial(0) in effects or 0 in state.paused
    step(state, ev.SearchResumed())
    assert (state.phase, state.reason) == ("running", "")
    assert waits(state)
    assert state.trials == before
    step(state, asked(state))
    assert state.trials[0].phase == "halted"


def test_answers_that_are_nobodys_change_nothing() -> None:
    state, _ = begin(sweep_of("asha", max_budget=9.0), slots=1)
    before = copy.deepcopy(state)
    assert step(state, ev.SchedulerAnswered(7, ())) == []
    assert step(state, ev.SchedulerFailed("?")) == []
    assert state == before
