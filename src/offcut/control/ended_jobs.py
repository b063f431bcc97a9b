"""Jobs that have ended: the last ones stay in the state, the others are in the history, and in the end are forgotten.

The history is kept beside the state, in the journal's database: the state, and with it every snapshot, stays as small
as what lives.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, cast

from offcut.control.state import ENDED, JobState, Settings, State
from offcut.model import events as ev
from offcut.model.effects import ArchiveJob, ForgetJobs
from offcut.model.ended_job import EndedJob, Outcome

if TYPE_CHECKING:
    from offcut.control.event_context import EventContext

#: An ended job stays in the state for this long in any case: its workers may still report.
_LEAST_S = 60.0


def note_end(context: EventContext, job: JobState) -> None:
    """Note that the job has ended, and move jobs that ended long ago to the history."""
    context.state.ended[job.job.id] = None
    archive(context)


def note_older_ends(state: State) -> None:
    """Note the ends of jobs in a state that an older version wrote."""
    ended = [job for job_id, job in state.jobs.items() if job.phase in ENDED and job_id not in state.ended]
    for job in sorted(ended, key=lambda job: job.ended_s or 0.0):
        state.ended[job.job.id] = None


def archive(context: EventContext) -> None:
    """Move the jobs that ended first to the history, until `recent_jobs` are left."""
    state = context.state
    while len(state.ended) > state.settings.recent_jobs:
        job = state.jobs[next(iter(state.ended))]
        if context.now_s - (job.ended_s or 0.0) < _LEAST_S:
            return
        context.emit(ArchiveJob, job=ended_job(job))
        _drop(state, job.job.id)


def ended_job(job: JobState) -> EndedJob:
    """Return what the history keeps of a job that has ended."""
    progress = job.progress
    return EndedJob(
        job=job.job,
        outcome=cast("Outcome", job.phase),
        reason=job.reason,
        submitted_s=job.submitted_s,
        ended_s=job.ended_s or 0.0,
        generation=job.generation,
        steps=progress.step,
        samples=progress.samples,
        loss=progress.loss,
        redone_steps=job.redone_steps,
        resizes=job.resizes,
        failures=job.failures,
        exit_code=job.exit_code,
    )


def on_jobs_forgotten(context: EventContext, event: ev.JobsForgotten) -> None:
    state = context.state
    forgotten = []
    for job_id in dict.fromkeys(event.jobs):
        job = state.jobs.get(job_id)
        if job is not None and job.phase not in ENDED:
            context.log(job_id, "not forgotten: it has not ended")
            continue
        if job is not None:
            _drop(state, job_id)
        forgotten.append(job_id)
    if forgotten:
        context.emit(ForgetJobs, jobs=tuple(forgotten), files=event.files)


def forget(context: EventContext, job_ids: tuple[str, ...], *, files: bool) -> None:
    """Let the jobs of a sweep that have ended, and the sweep itself, leave the state and the history.

    Args:
        context: the event.
        job_ids: the jobs; those that are in the history need not be in the state.
        files: whether what offcut wrote for them is deleted.
    """
    for job_id in job_ids:
        if job_id in context.state.jobs:
            _drop(context.state, job_id)
    context.emit(ForgetJobs, jobs=job_ids, files=files)


def _drop(state: State, job_id: str) -> None:
    del state.jobs[job_id]
    state.ended.pop(job_id, None)
    state.histories.retire(job_id)


def outdated(ended_s: Iterable[tuple[str, float]], settings: Settings, now_s: float) -> tuple[str, ...]:
    """Return which of these jobs, with the times of their ends, have ended so long ago that they are forgotten."""
    before_s = forgotten_before_s(settings, now_s)
    return tuple(job for job, end_s in ended_s if end_s < before_s)


def forgotten_before_s(settings: Settings, now_s: float) -> float:
    """Return the time such that jobs which ended before it are forgotten."""
    return now_s - settings.keep_jobs_s
