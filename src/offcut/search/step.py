"""`step`: answers one event of a search."""

from __future__ import annotations

from dataclasses import replace

from offcut.errors import InputError
from offcut.model.search_space import ParameterValues
from offcut.model.sweep import Sweep
from offcut.search import events as ev
from offcut.search.decisions import SearchContext, decide_all, give_parameters
from offcut.search.schedulers.load import scheduler_of
from offcut.search.state import SearchState
from offcut.search.suggestion import suggest_random
from offcut.search.trials import FINAL, Result, TrialEnd
from offcut.search.user_scheduler import use_answers, waits_for_scheduler


def begin(sweep: Sweep, slots: int = 1) -> tuple[SearchState, list[ev.SearchEffect]]:
    """Begin a search.

    Args:
        sweep: what is searched.
        slots: how many trials are useful at once, as far as nodes are concerned.

    Returns:
        Its state, and what is to be done first.
    """
    state = SearchState(sweep, slots=slots)
    return state, step(state, ev.SlotsChanged(slots))


def step(state: SearchState, event: ev.SearchEvent) -> list[ev.SearchEffect]:
    """Answer one event: change `state`, and return what is to be done, in this order.

    Pure and total: any event is answered in any state, and what does not fit (a report of a trial that was stopped, the
    answer to a question that was answered already) changes nothing.

    Args:
        state: the search.
        event: what happened.
    """
    traits = state.sweep.scheduler_traits
    if traits is not None and isinstance(event, ev.SchedulerAnswered):
        return use_answers(state, traits, event).finish()
    context = SearchContext(state, scheduler_of(state.sweep))
    match event:
        case ev.TrialReported():
            if not _on_reported(context, event):
                return context.unchanged()
        case ev.TrialEnded():
            _on_ended(context, event)
        case ev.ParametersSuggested():
            _on_suggested(context, event)
        case ev.SuggestionFailed():
            if _is_asked(state, event.trial):
                context.log(f"no suggestion ({event.reason}): its parameters are drawn at random", event.trial)
                give_parameters(context, state.trials[event.trial], _random(state, event.trial))
        case ev.SchedulerFailed():
            if traits is not None and state.phase == "running":
                state.phase, state.reason = "paused", event.reason
                context.log(f"paused: {event.reason}")
        case ev.SchedulerAnswered():
            pass  # the scheduler is one of offcut's own
        case ev.SlotsChanged():
            state.slots = max(0, event.slots)
        case ev.NodeTimeUsed():
            state.used_node_s = max(state.used_node_s, event.node_s)
        case ev.SearchPaused():
            if state.phase == "running":
                state.phase = "paused"
                context.log("paused")
        case ev.SearchResumed():
            if state.phase == "paused":
                state.phase, state.reason = "running", ""
                context.log("resumed")
        case ev.SearchCancelled():
            context.end("cancelled", "cancelled by hand")
        case ev.SearchExtended():
            _on_extended(context, event)
    if traits is not None:
        if waits_for_scheduler(state):
            state.revision += 1
        return context.finish()
    try:
        decide_all(context)
    except Exception as error:  # of a user's scheduler, in a replay
        context.end("failed", f"the scheduler {state.sweep.scheduler.name} failed: {type(error).__name__}: {error}")
    return context.finish()


def reissue(state: SearchState) -> list[ev.SearchEffect]:
    """Return the effects that wait for an answer. A controller that starts again carries them out again.

    Args:
        state: the search, as the journal gives it.
    """
    if state.phase not in ("running", "paused"):
        return []
    return [ev.AskParameters(trial.number) for trial in state.trials.values() if trial.phase == "asked"]


def _is_asked(state: SearchState, number: int) -> bool:
    trial = state.trials.get(number)
    return trial is not None and trial.phase == "asked"


def _random(state: SearchState, number: int) -> ParameterValues:
    return suggest_random(state.sweep.space, state.sweep.seed, number)


def _on_reported(context: SearchContext, event: ev.TrialReported) -> bool:
    """Note a report. Return whether there may be something to decide: most reports are of budgets before a rung."""
    state = context.state
    trial = state.trials.get(event.trial)
    if trial is None or trial.leg != event.leg or trial.phase in FINAL:
        return False
    was_proven = state.proven
    if not trial.note_report(Result(event.budget, event.value), state.sweep.direction):
        return False
    if event.value != event.value:
        context.log(f"its objective is NaN at budget {event.budget:g}: that counts as the worst", trial.number)
    context.prove()
    return bool(trial.reports) or not was_proven


def _on_ended(context: SearchContext, event: ev.TrialEnded) -> None:
    state = context.state
    trial = state.trials.get(event.trial)
    if trial is None or trial.leg != event.leg or trial.phase in FINAL or trial.end is not None:
        return
    failed, reason = event.failed, event.reason
    if not failed and trial.last_report is None:
        failed, reason = True, "its script ended without reporting its objective"
    trial.end = TrialEnd(failed, reason)
    if failed:
        context.log(f"failed: {reason}", trial.number)
    if not state.proven:
        broken = [each for each in state.trials.values() if each.end is not None and each.end.failed]
        if len(broken) >= min(state.sweep.max_failed_first, state.sweep.max_trials):
            context.end("failed", f"its first {len(broken)} trials failed, the last one: {reason}")
        else:
            context.start_probe()


def _on_suggested(context: SearchContext, event: ev.ParametersSuggested) -> None:
    state = context.state
    if not _is_asked(state, event.trial):
        return
    parameters = event.parameters
    try:
        state.sweep.space.check(parameters)
    except InputError as error:
        context.log(f"the suggestion is not in the search space ({error.what}): it is drawn at random", event.trial)
        parameters = _random(state, event.trial)
    give_parameters(context, state.trials[event.trial], parameters)


def _on_extended(context: SearchContext, event: ev.SearchExtended) -> None:
    state, sweep = context.state, context.state.sweep
    if state.phase in ("cancelled", "failed"):
        return
    state.sweep = replace(
        sweep,
        max_trials=max(sweep.max_trials, event.max_trials or 0),
        total_budget=_raised(sweep.total_budget, event.total_budget),
        max_node_hours=_raised(sweep.max_node_hours, event.max_node_hours),
    )
    if state.phase == "finished":
        state.phase = "running"
    limits = [f"{state.sweep.max_trials} trials"]
    if state.sweep.total_budget is not None:
        limits.append(f"a budget of {state.sweep.total_budget:g}")
    if state.sweep.max_node_hours is not None:
        limits.append(f"{state.sweep.max_node_hours:g} node-hours")
    context.log(f"extended: at most {', '.join(limits)}")


def _raised(limit: float | None, to: float | None) -> float | None:
    """Return the higher one of two limits. None: there is no limit, and none is set."""
    return limit if limit is None or to is None else max(limit, to)
