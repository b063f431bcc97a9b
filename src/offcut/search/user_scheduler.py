"""Decisions of a scheduler from a user's file, which runs in a process of its own.

The process works on a copy of the search: `answers_for` makes all decisions that its results allow and returns what the
scheduler answered, call by call. The search takes these answers from an event (`use_answers`): it makes the same
decisions with them, so that a journal gives the same state again without the file. Meanwhile more results may have come
in: then the answers are used as far as they fit, and the scheduler is asked again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

from offcut.errors import InputError
from offcut.model.sweep import SchedulerAnswer, SchedulerTraits
from offcut.search import events as ev
from offcut.search.decisions import SearchContext, capacity, decide_all
from offcut.search.result_order import has_outcome
from offcut.search.schedulers.base import (
    Continue,
    Decision,
    Exploit,
    Halt,
    Resume,
    SearchView,
    StartNew,
    Stop,
    TrialScheduler,
)
from offcut.search.state import SearchState
from offcut.search.trials import Trial


class AnswersDoNotFitError(Exception):
    """The next answer is not one to this call, or there is none left."""


class _Recorder:
    """Calls a user's scheduler, checks what it answers, and keeps that."""

    def __init__(self, scheduler: TrialScheduler, traits: SchedulerTraits) -> None:
        self._scheduler = scheduler
        self.max_budget, self.waits_at_rungs = traits.max_budget, traits.waits_at_rungs
        self.answers: list[SchedulerAnswer] = []

    def next_rung(self, trial: Trial, budget: float) -> float:
        rung: Any = self._scheduler.next_rung(trial, budget)
        if isinstance(rung, bool) or not isinstance(rung, int | float) or not math.isfinite(rung):
            raise ValueError(f"next_rung returned {rung!r} for trial {trial.number}, which is not a finite number")
        self.answers.append(SchedulerAnswer(call="next_rung", trial=trial.number, action="rung", budget=float(rung)))
        return float(rung)

    def decide(self, view: SearchView, trial: Trial) -> Decision:
        decision: Any = self._scheduler.decide(view, trial)
        answer = SchedulerAnswer(call="decide", trial=trial.number, action="continue")
        match decision:
            case Continue():
                pass
            case Halt():
                answer = replace(answer, action="halt")
            case Stop():
                answer = replace(answer, action="stop", reason=str(decision.reason))
            case Exploit():
                _check_source(view, trial, decision.source)
                parameters = dict(decision.parameters)
                answer = replace(answer, action="exploit", number=decision.source, parameters=parameters)
            case _:
                raise ValueError(f"decide returned {decision!r}, which is not Continue, Halt, Stop or Exploit")
        self.answers.append(answer)
        made: Decision = decision
        return made

    def next_trial(self, view: SearchView) -> StartNew | Resume | None:
        action: Any = self._scheduler.next_trial(view)
        answer = SchedulerAnswer(call="next_trial", action="none")
        match action:
            case None:
                pass
            case Resume():
                trial = view.trials.get(action.number)
                if trial is None:
                    raise ValueError(f"next_trial resumed trial {action.number!r}, which does not exist")
                answer = replace(answer, action="resume", number=action.number)
            case StartNew():
                _check_new(view, action)
                parameters = None if action.parameters is None else dict(action.parameters)
                answer = replace(
                    answer, action="start", number=action.bracket, parameters=parameters, parent=action.parent
                )
            case _:
                raise ValueError(f"next_trial returned {action!r}, which is not StartNew, Resume or None")
        self.answers.append(answer)
        chosen: StartNew | Resume | None = action
        return chosen


def _check_source(view: SearchView, trial: Trial, source: Any) -> None:
    if source not in view.trials or source == trial.number or not view.trials[source].results:
        raise ValueError(f"decide let trial {trial.number} go on from trial {source!r}, which has no result")


def _check_new(view: SearchView, action: StartNew) -> None:
    if action.parent is not None and action.parent not in view.trials:
        raise ValueError(f"next_trial named trial {action.parent!r} as a parent, which does not exist")
    if isinstance(action.bracket, bool) or not isinstance(action.bracket, int):
        raise ValueError(f"next_trial returned the bracket {action.bracket!r}, which is not an integer")
    if action.parameters is not None:
        try:
            view.sweep.space.check(dict(action.parameters))
        except InputError as error:
            raise ValueError(f"next_trial returned parameters that are not in the search space: {error.what}") from None


class _Replay:
    """Gives the answers that a scheduler has given before, in their order."""

    def __init__(self, traits: SchedulerTraits, answers: Sequence[SchedulerAnswer]) -> None:
        self.max_budget, self.waits_at_rungs = traits.max_budget, traits.waits_at_rungs
        self._answers = list(reversed(answers))

    @property
    def is_used_up(self) -> bool:
        """Whether no answer is left."""
        return not self._answers

    def _next(self, call: str, trial: int | None) -> SchedulerAnswer:
        if not self._answers or (self._answers[-1].call, self._answers[-1].trial) != (call, trial):
            raise AnswersDoNotFitError
        return self._answers.pop()

    def next_rung(self, trial: Trial, budget: float) -> float:
        return self._next("next_rung", trial.number).budget

    def decide(self, view: SearchView, trial: Trial) -> Decision:
        answer = self._next("decide", trial.number)
        match answer.action:
            case "halt":
                return Halt()
            case "stop":
                return Stop(answer.reason)
            case "exploit":
                return Exploit(answer.number, answer.parameters or {})
            case _:
                return Continue()

    def next_trial(self, view: SearchView) -> StartNew | Resume | None:
        answer = self._next("next_trial", None)
        match answer.action:
            case "resume":
                return Resume(answer.number)
            case "start":
                return StartNew(answer.number, answer.parameters, answer.parent)
            case _:
                return None


def waits_for_scheduler(state: SearchState) -> bool:
    """Return whether there may be something to decide."""
    if state.phase != "running":
        return False
    return len(state.active()) < capacity(state) or any(
        trial.phase in ("ready", "running") and has_outcome(trial) for trial in state.trials.values()
    )


def answers_for(state: SearchState, scheduler: TrialScheduler, traits: SchedulerTraits) -> tuple[SchedulerAnswer, ...]:
    """Make all decisions that the results allow. To be called on a copy of a search, which it changes.

    Args:
        state: the copy.
        scheduler: the user's.
        traits: what it has said of itself when the sweep was submitted.

    Returns:
        What the scheduler answered, in order.

    Raises:
        Exception: what the scheduler raised; ValueError if it answered what is not possible.
    """
    recorder = _Recorder(scheduler, traits)
    decide_all(SearchContext(state, recorder))
    return tuple(recorder.answers)


def use_answers(state: SearchState, traits: SchedulerTraits, event: ev.SchedulerAnswered) -> SearchContext:
    """Make the decisions of these answers, as far as they fit to what has been reported meanwhile.

    Args:
        state: the search.
        traits: what the scheduler has said of itself.
        event: the answers.

    Returns:
        The context, with the effects.
    """
    before = _copied(state)
    stale = state.revision != event.revision
    context, fits = _replayed(state, traits, event, stale=stale, rounds=None)
    if not fits:
        # The round in which they do not fit is undone: only whole rounds count.
        _restore(state, before)
        context, _ = _replayed(state, traits, event, stale=stale, rounds=context.rounds)
    state.answered = max(state.answered, event.revision)
    if not fits and not stale:
        state.revision += 1  # it is asked again
    return context


def _replayed(
    state: SearchState, traits: SchedulerTraits, event: ev.SchedulerAnswered, *, stale: bool, rounds: int | None
) -> tuple[SearchContext, bool]:
    """Make decisions with these answers. Return the context, and whether all answers that were needed were there.

    Args:
        state: the search.
        traits: what the scheduler has said of itself.
        event: the answers.
        stale: whether more has been reported since the scheduler was asked: then decisions end with the answers.
        rounds: at most this many rounds of decisions.
    """
    replay = _Replay(traits, event.answers)
    context = SearchContext(state, replay)
    try:
        decide_all(context, stop=lambda: context.rounds == rounds or (stale and replay.is_used_up))
    except AnswersDoNotFitError:
        return context, False
    return context, True


def _copied(state: SearchState) -> SearchState:
    """Return a copy that does not change with `state`."""
    trials = {
        number: replace(trial, results=list(trial.results), copies=list(trial.copies), reports=list(trial.reports))
        for number, trial in state.trials.items()
    }
    return replace(state, trials=trials, completed=list(state.completed), paused=set(state.paused))


def _restore(state: SearchState, before: SearchState) -> None:
    for each in fields(SearchState):
        setattr(state, each.name, getattr(before, each.name))
