"""Copies of the state of trials, for population-based training.

A trial that takes over the state of another one goes on as a new job, whose directory is a copy. So nothing is ever
half replaced: the trial's old job has ended, and its files stay as they are. The job that is copied from is paused,
which lets its last members save their state, until the copy is there. The controller's journal has the new job's id
before anything is copied, and after a restart the copying is asked for again.
"""

from __future__ import annotations

from dataclasses import replace

from offcut.control import jobs, membership
from offcut.control.event_context import EventContext
from offcut.control.state import ENDED, LIVE, State
from offcut.control.sweep_state import StateCopy, SweepState, TrialJob, sweep_id_of
from offcut.control.trial_jobs import trial_job
from offcut.model import events as ev
from offcut.model.effects import CopyJobState
from offcut.model.ended_job import CANCELLED_CODE
from offcut.model.events import Timer
from offcut.search.events import CopyState


def begin(context: EventContext, sweep: SweepState, effect: CopyState) -> None:
    """End the trial's job, and submit its next one, which waits for a copy of the state of `effect.source`."""
    state, definition = context.state, sweep.search.sweep
    old = sweep.job_id(effect.trial, effect.leg - 1)
    source = sweep.job_id(effect.source, effect.source_leg)
    sweep.trial_jobs.pop(old, None)
    sweep.copies.pop(old, None)
    old_job = state.jobs.get(old)
    if old_job is not None and old_job.phase not in ENDED:
        reason = f"its trial goes on from the state of {source}"
        jobs.end(context, old_job, "cancelled", reason, CANCELLED_CODE)
    job = trial_job(definition, effect.trial, effect.parameters, effect.leg)
    if old_job is not None:
        job = replace(job, weight=old_job.job.weight)
    sweep.trial_jobs[job.id] = TrialJob(effect.trial, effect.leg)
    sweep.copies[job.id] = StateCopy((source, old))
    jobs.submit(context, job)
    jobs.pause(context, state.jobs[job.id])
    _hold(context, sweep, source)


def _hold(context: EventContext, sweep: SweepState, job_id: str) -> None:
    """Pause the job until its state is copied."""
    job = context.state.jobs.get(job_id)
    if job is None or job.phase in ENDED:
        return
    sweep.held[job_id] = None
    if job.phase in LIVE:
        context.log(job_id, "pauses until its state is copied")
        jobs.pause(context, job)
    if job.state_holders:
        context.set_timer(Timer("depart", job_id), membership.departure_limit_s(context.state, job))


def waits(sweep: SweepState, job_id: str) -> bool:
    """Return whether the job waits for a copy, or is held for one."""
    return job_id in sweep.copies or job_id in sweep.held


def ask(context: EventContext) -> None:
    """Ask for the copies whose sources do not run any more."""
    for sweep in context.state.sweeps.values():
        for job_id, copy in sweep.copies.items():
            if not copy.asked and _has_stopped(context.state, copy.sources[0]):
                copy.asked = True
                context.emit(CopyJobState, job=job_id, sources=copy.sources)


def ask_again(state: State) -> None:
    """Let the copies be asked for again: the controller before this one may have died while they were made."""
    for sweep in state.sweeps.values():
        for copy in sweep.copies.values():
            copy.asked = False


def _has_stopped(state: State, job_id: str) -> bool:
    """Return whether what the job has saved does not change any more."""
    job = state.jobs.get(job_id)
    return job is None or job.phase in ENDED or (job.phase == "paused" and not job.state_holders)


def on_state_copied(context: EventContext, event: ev.JobStateCopied) -> None:
    sweep = context.state.sweeps.get(sweep_id_of(event.job))
    copy = sweep.copies.get(event.job) if sweep is not None else None
    if sweep is None or copy is None or not copy.asked:
        return
    del sweep.copies[event.job]
    if event.source == copy.sources[0]:
        context.log(event.job, f"goes on from the state of {event.source}")
    elif event.source:
        context.log(event.job, f"{copy.sources[0]} has saved no state: goes on from that of {event.source}")
    else:
        context.log(event.job, f"{copy.sources[0]} has saved no state: begins from the start")
    let_run(context, sweep, event.job)
    settle(context, sweep)


def settle(context: EventContext, sweep: SweepState) -> None:
    """Drop copies for jobs that have ended, and let the jobs run again that are held for no copy any more."""
    jobs_there = context.state.jobs
    for job_id in list(sweep.copies):
        if job_id not in jobs_there or jobs_there[job_id].phase in ENDED:
            del sweep.copies[job_id]
    needed = {copy.sources[0] for copy in sweep.copies.values()}
    for job_id in list(sweep.held):
        if job_id not in needed:
            del sweep.held[job_id]
            let_run(context, sweep, job_id)


def let_run(context: EventContext, sweep: SweepState, job_id: str) -> None:
    """Resume the job of a trial, unless its search wants it paused, or a copy is made of it or for it."""
    its = sweep.trial_jobs.get(job_id)
    if its is not None and its.trial not in sweep.search.paused and not waits(sweep, job_id):
        jobs.resume(context, context.state.jobs.get(job_id))
