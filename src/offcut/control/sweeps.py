"""Handlers of events about sweeps. A trial is a job: what a search wants of its trials is done with their jobs.

A trial that halts is a paused job: it keeps its state and holds no node. Promising trials weigh more: the weight of a
trial's job is that of the sweep times one more than the rungs that it has reached.
"""

from __future__ import annotations

from dataclasses import replace

from offcut import search
from offcut.control import ended_jobs, jobs, trial_copies
from offcut.control.event_context import EventContext
from offcut.control.state import ENDED, LIVE, State
from offcut.control.sweep_state import SweepState, TrialJob, sweep_id_of
from offcut.control.trial_jobs import trial_job
from offcut.model import events as ev
from offcut.model.ended_job import CANCELLED_CODE
from offcut.model.sweep import Sweep
from offcut.search import events as search_events


def on_sweep_submitted(context: EventContext, event: ev.SweepSubmitted) -> None:
    state, sweep = context.state, event.sweep
    if sweep.id in state.sweeps:
        context.log(sweep.id, "submitted again: ignored")
        return
    state.submitted += 1
    began, effects = search.begin(sweep, useful_trials(state, None, sweep))
    state.sweeps[sweep.id] = SweepState(began, context.now_s)
    context.log(sweep.id, f"submitted: at most {sweep.max_trials} trials, scheduler {sweep.scheduler.name}")
    _carry_out(context, state.sweeps[sweep.id], effects)


def on_sweep_paused(context: EventContext, event: ev.SweepPaused) -> None:
    _tell(context, event.sweep, search_events.SearchPaused())


def on_sweep_resumed(context: EventContext, event: ev.SweepResumed) -> None:
    _tell(context, event.sweep, search_events.SearchResumed())


def on_sweep_cancelled(context: EventContext, event: ev.SweepCancelled) -> None:
    _tell(context, event.sweep, search_events.SearchCancelled())


def on_sweep_extended(context: EventContext, event: ev.SweepExtended) -> None:
    extended = search_events.SearchExtended(event.max_trials, event.total_budget, event.max_node_hours)
    _tell(context, event.sweep, extended)


def on_sweep_forgotten(context: EventContext, event: ev.SweepForgotten) -> None:
    state, sweep = context.state, context.state.sweeps.get(event.sweep)
    if sweep is None:
        return
    if sweep.ended_s is None:
        context.log(event.sweep, "not forgotten: it has not ended")
        return
    job_ids = sweep.job_ids()
    del state.sweeps[event.sweep]
    for job_id in job_ids:
        job = state.jobs.get(job_id)
        if job is not None and job.phase not in ENDED:
            jobs.end(context, job, "cancelled", "its sweep is forgotten", CANCELLED_CODE)
    ended_jobs.forget(context, (*job_ids, event.sweep), files=event.files)


def on_trial_suggested(context: EventContext, event: ev.TrialSuggested) -> None:
    if event.failure:
        _tell(context, event.sweep, search_events.SuggestionFailed(event.trial, event.failure))
    else:
        _tell(context, event.sweep, search_events.ParametersSuggested(event.trial, event.parameters))


def on_scheduler_answered(context: EventContext, event: ev.SchedulerAnswered) -> None:
    if event.failure:
        _tell(context, event.sweep, search_events.SchedulerFailed(event.failure))
    else:
        _tell(context, event.sweep, search_events.SchedulerAnswered(event.revision, event.answers))


def on_objectives_read(context: EventContext, event: ev.ObjectivesRead) -> None:
    sweep_id = sweep_id_of(event.job)
    sweep = context.state.sweeps.get(sweep_id)
    trial_job = sweep.trial_jobs.get(event.job) if sweep is not None else None
    if sweep is None or trial_job is None:
        return
    number, leg = trial_job.trial, trial_job.leg
    for report in event.reports:
        _tell(context, sweep_id, search_events.TrialReported(number, report.budget, report.value, leg))
    # One of the reports may have let the trial go on from another one's state, as another job.
    if event.complete and trial_job.ended and sweep.trial_jobs.get(event.job) is trial_job:
        del sweep.trial_jobs[event.job]
        _tell(context, sweep_id, search_events.TrialEnded(number, trial_job.failed, trial_job.reason, leg))


def follow_nodes(context: EventContext) -> None:
    """Tell the searches how many trials are useful now that nodes or jobs have changed."""
    for sweep in context.state.sweeps.values():
        definition = sweep.search.sweep
        if sweep.search.phase == "running" and definition.order == "arrival":
            slots = min(useful_trials(context.state, sweep, definition), definition.parallel)
            if slots != sweep.search.slots:
                _step(context, sweep, search_events.SlotsChanged(slots))


def trial_node_s(state: State, sweep: SweepState, trial: int, now_s: float) -> float:
    """Return for how long nodes were assigned to the jobs of a trial, in node-seconds."""
    job = state.jobs.get(sweep.job_id(trial))
    running_s = job.node_s(now_s) if job is not None and job.phase not in ENDED else 0.0
    return sweep.ended_node_s.get(trial, 0.0) + running_s


def node_s(state: State, sweep: SweepState, now_s: float) -> float:
    """Return for how long nodes were assigned to the jobs of all trials, in node-seconds."""
    living = [job for job_id in sweep.trial_jobs if (job := state.jobs.get(job_id)) is not None]
    return sum(sweep.ended_node_s.values()) + sum(job.node_s(now_s) for job in living if job.phase not in ENDED)


def useful_trials(state: State, sweep: SweepState | None, definition: Sweep) -> int:
    """Return how many trials of a sweep the nodes are enough for: those that are free, and those of its trials."""
    held = 0
    if sweep is not None:
        held = sum(len(state.jobs[job_id].nodes) for job_id in sweep.trial_jobs if job_id in state.jobs)
    return max(1, (len(state.free) + held) // definition.job.sizes.smallest)


def _tell(context: EventContext, sweep_id: str, event: search_events.SearchEvent) -> None:
    sweep = context.state.sweeps.get(sweep_id)
    if sweep is not None:
        _step(context, sweep, event)


def _step(context: EventContext, sweep: SweepState, event: search_events.SearchEvent) -> None:
    """Let the search answer an event, and carry out what follows. It is told the node-hours if they have a limit."""
    if sweep.search.sweep.max_node_hours is not None:
        used = search_events.NodeTimeUsed(node_s(context.state, sweep, context.now_s))
        _carry_out(context, sweep, search.step(sweep.search, used))
    _carry_out(context, sweep, search.step(sweep.search, event))


def _carry_out(context: EventContext, sweep: SweepState, effects: list[search_events.SearchEffect]) -> None:
    definition = sweep.search.sweep
    for effect in effects:
        match effect:
            case search_events.StartTrial():
                job = trial_job(definition, effect.trial, effect.parameters)
                sweep.trial_jobs[job.id] = TrialJob(effect.trial)
                jobs.submit(context, job)
            case search_events.HaltTrial():
                jobs.pause(context, context.state.jobs.get(sweep.job_id(effect.trial)))
            case search_events.ResumeTrial():
                trial_copies.let_run(context, sweep, sweep.job_id(effect.trial))
            case search_events.StopTrial():
                stopped = context.state.jobs.get(sweep.job_id(effect.trial))
                if stopped is not None and stopped.phase not in ENDED:
                    jobs.end(context, stopped, "cancelled", f"stopped by its sweep: {effect.reason}", CANCELLED_CODE)
            case search_events.CopyState():
                trial_copies.begin(context, sweep, effect)
            case search_events.RungReached():
                _weigh(context, sweep, effect.trial, effect.rungs)
            case search_events.LogDecision():
                about = "" if effect.trial is None else f"trial {effect.trial}: "
                context.log(definition.id, about + effect.text)
                if effect.trial is not None:
                    context.log(sweep.job_id(effect.trial), f"sweep {definition.name}: {effect.text}")
            case search_events.AskParameters():
                pass  # the suggester's task finds the trials that wait in the state
    trial_copies.settle(context, sweep)
    if sweep.search.phase in ("running", "paused"):
        sweep.ended_s = None
    elif sweep.ended_s is None:
        sweep.ended_s = context.now_s


def _weigh(context: EventContext, sweep: SweepState, trial: int, rungs: int) -> None:
    """Let the job of a trial weigh the more the more rungs it has reached."""
    job = context.state.jobs.get(sweep.job_id(trial))
    weight = sweep.search.sweep.job.weight * (1 + rungs)
    if job is not None and job.phase not in ENDED and job.job.weight != weight:
        job.job = replace(job.job, weight=weight)
        context.problem_changed = context.problem_changed or job.phase in LIVE
