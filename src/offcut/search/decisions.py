"""From the results that are there to decisions: which trials run on, halt or stop, and which one comes next."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Literal

from offcut.errors import InputError
from offcut.model.search_space import ParameterValues, SearchSpace
from offcut.search import events as ev
from offcut.search.result_order import next_outcomes
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
from offcut.search.suggestion import grid_points, suggest_random
from offcut.search.trials import FINAL, CopiedState, Trial


class SearchContext:
    """The state of a search while one event is answered, and the effects that follow from it.

    Args:
        state: the search.
        scheduler: who decides.
    """

    def __init__(self, state: SearchState, scheduler: TrialScheduler) -> None:
        self.state = state
        self.scheduler = scheduler
        #: How many rounds of decisions have been made: a trial was started or resumed, or results took part.
        self.rounds = 0
        self._effects: list[ev.SearchEffect] = []

    @property
    def view(self) -> SearchView:
        """What schedulers are shown."""
        return SearchView(self.state.sweep, self.state.trials, self.state.completed)

    def emit(self, effect: ev.SearchEffect) -> None:
        """Add an effect."""
        self._effects.append(effect)

    def log(self, text: str, trial: int | None = None) -> None:
        """Add a line to the sweep's log.

        Args:
            text: the line.
            trial: the trial that it is about; None: the whole sweep.
        """
        self.emit(ev.LogDecision(text, trial))

    def prove(self) -> None:
        """Note that a trial has reported: the others are started."""
        if self.state.proven:
            return
        self.state.proven = True
        for trial in self.state.trials.values():
            if trial.phase == "ready":
                self._start(trial)

    def start_probe(self) -> None:
        """Start the first trial that is ready, unless one runs: until one has reported, only one runs at a time."""
        trials = self.state.trials.values()
        if any(trial.phase == "running" and trial.end is None for trial in trials):
            return
        ready = next((trial for trial in trials if trial.phase == "ready" and trial.end is None), None)
        if ready is not None:
            self._start(ready)

    def make_ready(self, trial: Trial) -> None:
        """Start a trial that has its parameters; before any has reported, only if no other runs."""
        trial.phase = "ready"
        if self.state.proven:
            self._start(trial)
        else:
            self.start_probe()

    def _start(self, trial: Trial) -> None:
        trial.phase = "running"
        self.emit(ev.StartTrial(trial.number, trial.parameters or {}))

    def end(self, phase: Literal["cancelled", "failed"], reason: str) -> None:
        """End the search for good; trials that are not decided upon stop.

        Args:
            phase: its final phase.
            reason: why it ends.
        """
        state = self.state
        if state.phase in ("cancelled", "failed"):
            return
        state.phase, state.reason = phase, reason
        self.log(f"{phase}: {reason}")
        for trial in state.trials.values():
            if trial.end is not None and trial.end.failed and trial.phase not in FINAL:
                trial.phase, trial.reason = "failed", trial.end.reason
                state.paused.discard(trial.number)
            elif trial.phase not in FINAL:
                self.stop(trial, "the sweep was cancelled" if phase == "cancelled" else "the sweep failed")

    def stop(self, trial: Trial, reason: str) -> None:
        """End a trial for good.

        Args:
            trial: a trial that is not in a final phase.
            reason: why it ends.
        """
        started = trial.phase in ("running", "halted")
        trial.phase, trial.reason, trial.reports = "stopped", reason, []
        self.state.paused.discard(trial.number)
        if started and trial.end is None:
            self.emit(ev.StopTrial(trial.number, reason))

    def unchanged(self) -> list[ev.SearchEffect]:
        """Return the effects of an event that leaves nothing to decide."""
        return self._effects

    def finish(self) -> list[ev.SearchEffect]:
        """Return the effects, with those that halt and resume trials.

        A trial that halts and is resumed within one event is not halted at all.
        """
        for trial in self.state.trials.values():
            if trial.phase == "completed" and trial.number in self.state.paused:
                self.state.paused.discard(trial.number)
                self.emit(ev.ResumeTrial(trial.number))  # its script runs to its end
            if trial.phase not in ("running", "halted") or trial.end is not None:
                continue
            undecided = (
                bool(trial.reports)
                and self.scheduler.waits_at_rungs
                and trial.rung_budget < self.scheduler.max_budget  # at its end it has nothing to wait for
            )
            wanted = trial.phase == "halted" or undecided or self.state.phase != "running"
            if wanted == (trial.number in self.state.paused):
                continue
            if wanted:
                self.state.paused.add(trial.number)
                self.emit(ev.HaltTrial(trial.number))
            else:
                self.state.paused.discard(trial.number)
                self.emit(ev.ResumeTrial(trial.number))
        return self._effects


def decide_all(context: SearchContext, stop: Callable[[], bool] = lambda: False) -> None:
    """Make all decisions that the results allow, until one waits for a result or a suggestion.

    Args:
        context: the search.
        stop: asked before each round of decisions; if it returns True, that round and later ones are not made.
    """
    state = context.state
    while state.phase == "running":
        nothing_left = _fill_slots(context, stop)
        if nothing_left is None:
            return
        if nothing_left and not state.active():
            state.phase = "finished"
            context.log(f"finished: {len(state.trials)} trials")
            return
        due = [] if stop() else next_outcomes(state)
        if not due:
            return
        entered = [trial for trial in due if _enter(context, trial)]
        # All of them are entered before the first is decided upon: they are of one logical time.
        view = context.view
        decided = [(trial, context.scheduler.decide(view, trial)) for trial in entered]
        # Copies come first: the state that they copy must not train on before.
        for trial, decision in sorted(decided, key=lambda pair: not isinstance(pair[1], Exploit)):
            _apply(context, trial, decision)
        context.rounds += 1


def _fill_slots(context: SearchContext, stop: Callable[[], bool]) -> bool | None:
    """Start and resume trials while there is room.

    Returns:
        Whether there is room and nothing to run in it; None if that was not decided, because it was to stop.
    """
    state = context.state
    while len(state.active()) < capacity(state):
        if state.budget_is_used:
            return True
        if stop():
            return None
        action = context.scheduler.next_trial(context.view)
        if isinstance(action, Resume):
            _resume(context, state.trials[action.number])
        elif action is None or not _start_new(context, action):
            return True
        context.rounds += 1
    return False


def capacity(state: SearchState) -> int:
    """Return how many trials may run at once."""
    if state.sweep.order == "logical":
        return state.sweep.parallel
    slots = min(state.sweep.parallel, state.slots)
    return slots if state.proven else min(slots, 1)


def _next_rung(context: SearchContext, trial: Trial, budget: float) -> float:
    """Return the scheduler's next rung for the trial, which must lie between its budget and the whole budget."""
    rung = context.scheduler.next_rung(trial, budget)
    if not budget < rung <= context.scheduler.max_budget:
        raise ValueError(f"next_rung returned {rung!r} for a trial at budget {budget:g}")
    return rung


def _resume(context: SearchContext, trial: Trial) -> None:
    if trial.phase != "halted":
        raise ValueError(f"next_trial resumed trial {trial.number}, which is {trial.phase}")
    trial.phase = "running"
    trial.clock, trial.clock_budget = context.state.clock, trial.budget
    trial.set_rung(_next_rung(context, trial, trial.budget))
    context.log(f"promoted from budget {trial.budget:g} to {trial.rung_budget:g}", trial.number)


def _start_new(context: SearchContext, action: StartNew) -> bool:
    """Add a trial. Return False if the sweep has all its trials."""
    state, sweep = context.state, context.state.sweep
    number = len(state.trials)
    points = _points(sweep.space) if sweep.suggester == "grid" and action.parameters is None else None
    if number >= sweep.max_trials or (points is not None and number >= len(points)):
        return False
    trial = Trial(number, bracket=action.bracket, parent=action.parent, clock=state.clock)
    state.trials[number] = trial
    trial.set_rung(_next_rung(context, trial, 0.0))
    if action.parameters is not None:
        give_parameters(context, trial, action.parameters)
    elif points is not None:
        give_parameters(context, trial, points[number])
    elif sweep.suggester == "random":
        give_parameters(context, trial, suggest_random(sweep.space, sweep.seed, number))
    else:
        context.emit(ev.AskParameters(number))
    return True


@lru_cache(maxsize=64)
def _points(space: SearchSpace) -> list[ParameterValues]:
    return grid_points(space)


def give_parameters(context: SearchContext, trial: Trial, parameters: ParameterValues) -> None:
    """Give a trial its parameters, and start it as soon as it may be.

    Args:
        context: the search.
        trial: a trial without parameters.
        parameters: its parameters.
    """
    trial.parameters = dict(parameters)
    shown = ", ".join(f"{name}={value}" for name, value in parameters.items())
    context.log(f"new: {shown}" if shown else "new", trial.number)
    context.make_ready(trial)


def _enter(context: SearchContext, trial: Trial) -> bool:
    """Let a trial's outcome take part. Return whether the scheduler decides about it."""
    state = context.state
    result = trial.wanted_result()
    if result is None:
        trial.phase = "failed"
        trial.reason = trial.end.reason if trial.end is not None else ""
        return False
    ended = not trial.reports
    trial.results.append(result)
    context.emit(ev.RungReached(trial.number, len(trial.results)))
    state.used_budget += result.budget - trial.clock_budget
    trial.clock, trial.clock_budget = state.clock, result.budget
    if ended or result.budget >= context.scheduler.max_budget:
        trial.phase, trial.reports = "completed", []
        state.completed.append(trial.number)
        context.log(f"completed with {result.value:g} at budget {result.budget:g}", trial.number)
        return False
    return True


def _apply(context: SearchContext, trial: Trial, decision: Decision) -> None:
    match decision:
        case Continue():
            trial.set_rung(_next_rung(context, trial, trial.budget))
        case Halt():
            trial.phase = "halted"
            context.log(f"halted with {trial.value:g} at budget {trial.budget:g}", trial.number)
        case Stop():
            context.stop(trial, decision.reason)
            context.log(f"stopped: {decision.reason}", trial.number)
        case Exploit():
            _exploit(context, trial, decision)


def _exploit(context: SearchContext, trial: Trial, decision: Exploit) -> None:
    """Let the trial continue from another one's state."""
    source = context.state.trials[decision.source]
    try:
        context.state.sweep.space.check(decision.parameters)
    except InputError as error:
        context.log(f"its changed parameters are not in the search space: {error.what}", trial.number)
        trial.set_rung(_next_rung(context, trial, trial.budget))
        return
    trial.copies.append(CopiedState(trial.budget, source.number, source.budget))
    trial.leg += 1
    trial.parameters = dict(decision.parameters)
    trial.reports, trial.end = [], None
    trial.last_report = source.results[-1]
    trial.clock_budget = source.budget
    trial.set_rung(_next_rung(context, trial, source.budget))
    context.state.paused.discard(trial.number)
    context.emit(
        ev.CopyState(trial.number, trial.leg, source.number, source.leg, source.budget, dict(decision.parameters))
    )
    context.log(f"continues from trial {source.number} at budget {source.budget:g}", trial.number)
