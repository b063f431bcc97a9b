"""`step`: answers one event. Which handler answers which event."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from offcut.control import (
    allocation,
    curve_learning,
    ended_jobs,
    jobs,
    lifecycle,
    membership,
    nodes,
    relaunch,
    sweeps,
    timers,
    trial_copies,
    workers,
)
from offcut.control.event_context import EventContext
from offcut.control.state import Skipped, State
from offcut.model import events as ev
from offcut.model.effects import Effect

#: How many of the events that could not be answered are kept.
_SKIPPED = 20

_HANDLERS: dict[type, Callable[[EventContext, Any], None]] = {
    ev.ControllerStarted: lifecycle.on_controller_started,
    ev.SweepSubmitted: sweeps.on_sweep_submitted,
    ev.SweepPaused: sweeps.on_sweep_paused,
    ev.SweepResumed: sweeps.on_sweep_resumed,
    ev.SweepCancelled: sweeps.on_sweep_cancelled,
    ev.SweepExtended: sweeps.on_sweep_extended,
    ev.SweepForgotten: sweeps.on_sweep_forgotten,
    ev.TrialSuggested: sweeps.on_trial_suggested,
    ev.SchedulerAnswered: sweeps.on_scheduler_answered,
    ev.ObjectivesRead: sweeps.on_objectives_read,
    ev.JobStateCopied: trial_copies.on_state_copied,
    ev.ControllerStopping: lifecycle.on_controller_stopping,
    ev.NodesChanged: nodes.on_nodes_changed,
    ev.NodesHeld: nodes.on_nodes_held,
    ev.ClaimRefused: nodes.on_claim_refused,
    ev.NodesBooted: nodes.on_nodes_booted,
    ev.AgentReported: nodes.on_agent_reported,
    ev.ReleaseAsked: nodes.on_release_asked,
    ev.LeaseChecked: lifecycle.on_lease_checked,
    ev.ClaimingResumed: nodes.on_claiming_resumed,
    ev.NodesForgiven: nodes.on_nodes_forgiven,
    ev.WorkersReady: workers.on_workers_ready,
    ev.WorkerExited: workers.on_worker_exited,
    ev.GenerationFormed: workers.on_generation_formed,
    ev.GenerationBroken: workers.on_generation_broken,
    ev.JobNearsEnd: jobs.on_job_nears_end,
    ev.JobTrained: jobs.on_job_trained,
    ev.JobSubmitted: jobs.on_job_submitted,
    ev.JobMeasured: curve_learning.on_job_measured,
    ev.JobNoted: jobs.on_job_noted,
    ev.JobCancelled: jobs.on_job_cancelled,
    ev.JobPaused: jobs.on_job_paused,
    ev.JobResumed: jobs.on_job_resumed,
    ev.JobChanged: jobs.on_job_changed,
    ev.JobsForgotten: ended_jobs.on_jobs_forgotten,
    ev.Solved: allocation.on_solved,
    ev.SolveFailed: allocation.on_solve_failed,
    ev.TimerFired: timers.on_timer_fired,
}


def _on_events_gathered(context: EventContext, event: ev.EventsGathered) -> None:
    for each in event.events:
        _HANDLERS[type(each)](context, each)


_HANDLERS[ev.EventsGathered] = _on_events_gathered


def step(state: State, event: ev.Event) -> list[Effect]:
    """Answer one event: change `state` and return what is to be done, in this order: nodes to release, membership
    generations, workers to stop, then the allocation problem to solve.

    Total: any event is answered in any state; what does not fit (a late report of a worker that is gone, the answer to
    an old problem) changes nothing. `JobProgressed` decides nothing: it has no number, because the journal does not
    hold it.
    """
    if isinstance(event, ev.JobProgressed):
        jobs.note_progress(state, event)
        return []
    before_s, state.now_s = state.now_s, max(state.now_s, event.time_s)
    state.event_id += 1
    context = EventContext(state, state.now_s, state.now_s - before_s)
    _HANDLERS[type(event)](context, event)
    if context.problem_changed and state.sweeps:
        sweeps.follow_nodes(context)
    for job_id, gone in list(context.changed_memberships.items()):
        job = state.jobs[job_id]
        if job.restarts:
            relaunch.settle(context, job)
        else:
            membership.settle(context, job, gone=gone)
    if state.sweeps:
        trial_copies.ask(context)
    context.emit_stops()
    if context.problem_changed:
        allocation.ask(context)
    return context.effects


def skip(state: State, event: ev.Event, reason: str) -> list[Effect]:
    """Pass over an event that `step` cannot answer. It takes its number, changes nothing else, and is logged.

    `step` leaves a half-changed state behind when it raises: `state` must be the one from before the event.
    """
    state.event_id += 1
    job = getattr(event, "job", "")
    job_id = job if isinstance(job, str) else str(job.id)
    state.skipped.append(Skipped(state.event_id, event.time_s, event.kind, job_id, reason))
    del state.skipped[:-_SKIPPED]
    context = EventContext(state, state.now_s)
    for subject in ("controller", job_id) if job_id else ("controller",):
        context.log(
            subject, f"event {state.event_id} ({event.kind}) could not be answered and changed nothing: {reason}"
        )
    return context.effects
