"""Decides which failures are counted, and when they are forgiven."""

from __future__ import annotations

import re

from offcut.control.state import JobState
from offcut.model import events as ev

#: The wait before a restart is doubled at most this often.
_DOUBLINGS = 7
#: The last line of a traceback, also behind the rank with which launchers begin a line.
_EXCEPTION = re.compile(r"(\[\w+\]:? *)?([A-Za-z_]\w*\.)*[A-Z]\w*(Error|Exception|Exit|Interrupt|Warning)(:|$)")


def count(job: JobState, event: ev.WorkerExited, generation: int) -> bool:
    """Count a failure. Return True if it is one too many.

    `generation` is the last one that the worker was in, 0 for none. All ranks of one generation raise at the same step:
    that is one failure. A worker that never was in a generation counts by itself.
    """
    if event.stable_step > job.failure_step:
        job.failures = 0
    if generation > job.failure_generation or generation == 0:
        job.failures += 1
        job.failure_generation = max(job.failure_generation, generation)
        job.failure_step = max(job.failure_step, event.stable_step)
    return job.failures > job.job.max_failures


def forgive(job: JobState, step: int) -> None:
    """Forgive the failures if the job got further than where it last failed.

    `step` is the first of a generation, so that the step before it is stable.
    """
    if step - 1 > job.failure_step:
        job.failures = 0


def count_launch(job: JobState, *, progressed: bool) -> bool:
    """Count a failed launch of a script that reports nothing. Return True if it is one too many.

    `progressed`: it ran long enough to get further than the launch before it.
    """
    job.failures = 1 if progressed else job.failures + 1
    return job.failures > job.job.max_failures


def count_broken(job: JobState) -> bool:
    """Count a membership that could not form as a failure. Return True if it is one too many."""
    job.failures += 1
    return job.failures > job.job.max_failures


def reason(job: JobState, event: ev.WorkerExited) -> str:
    why = last_line(event)
    return why if job.failures == 1 else f"{job.failures} failures in a row; the last: {why}"


def last_line(event: ev.WorkerExited) -> str:
    """Return how the worker ended, in one line: the last line of what it printed that names an exception, else the
    last one that is not blank.
    """
    lines = [line for line in event.detail.splitlines() if line.strip()]
    raised = [line for line in lines if _EXCEPTION.match(line)]
    return (raised or lines or [event.outcome])[-1].strip()


def exit_code(event: ev.WorkerExited) -> int:
    """Return the exit code of a job that ended because of this failure, as a shell has it: 128 + the signal's number
    if a signal ended its script, 1 if it had no exit code or one of success.
    """
    if event.code is not None and event.code < 0:
        return 128 - event.code
    return event.code or 1


def await_disk(job: JobState, event: ev.WorkerExited, now_s: float, first_s: float) -> float:
    """Note that the disk of the job's files is full, which is not a failure of the job. Return the wait in seconds.

    Workers that fail during a wait share it.
    """
    job.disk.reason = event.disk
    if now_s >= job.disk.again_s:
        job.disk.again_s = now_s + first_s * 2.0 ** min(_DOUBLINGS, job.disk.waits)
        job.disk.waits += 1
    return job.disk.again_s - now_s


def forgive_disk(job: JobState) -> None:
    """Note that the job's files can be written again: it trains."""
    job.disk.reason, job.disk.waits = "", 0


def wait_s(job: JobState, first_s: float) -> float:
    """Return how long to wait before the restart after the newest failure, in seconds."""
    return first_s * 2.0 ** min(_DOUBLINGS, max(0, job.failures - 1))
