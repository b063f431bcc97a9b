"""Which failures are counted, and when they are forgiven."""

from __future__ import annotations

from offcut.control.state import JobState
from offcut.model import events as ev

#: The wait before a restart is doubled at most this often.
_DOUBLINGS = 7


def count(job: JobState, event: ev.WorkerExited, generation: int) -> bool:
    """Count a failure; True if it is one too many. `generation` is the last that the worker was in, 0 for none.

    All ranks of one generation raise at the same step: that is one failure. A worker that never was in a generation
    counts by itself.
    """
    if event.stable_step > job.failure_step:
        job.failures = 0
    if generation > job.failure_generation or generation == 0:
        job.failures += 1
        job.failure_generation = max(job.failure_generation, generation)
        job.failure_step = max(job.failure_step, event.stable_step)
    return job.failures > job.job.max_failures


def forgive(job: JobState, step: int) -> None:
    """A generation's first step was `step`: the one before it is stable.

    Is that further than where the job last failed?
    """
    if step - 1 > job.failure_step:
        job.failures = 0


def count_launch(job: JobState, *, progressed: bool) -> bool:
    """Count a launch of a script that reports nothing; True if it is one failure too many.

    `progressed`: it ran for long enough to have got further than the launch before it.
    """
    job.failures = 1 if progressed else job.failures + 1
    return job.failures > job.job.max_failures


def count_broken(job: JobState) -> bool:
    """Count a membership that could not form; True if it is one failure too many."""
    job.failures += 1
    return job.failures > job.job.max_failures


def reason(job: JobState, event: ev.WorkerExited) -> str:
    return f"{job.failures} failures in a row; the last: {last_line(event)}"


def last_line(event: ev.WorkerExited) -> str:
    """How it ended, in a line: of a traceback, the exception."""
    detail = event.detail.strip()
    return detail.splitlines()[-1] if detail else event.outcome


def await_disk(job: JobState, event: ev.WorkerExited, now_s: float, first_s: float) -> float:
    """The disk of the job's files is full: no failure of the job's. How long to wait before the restart.

    What fails while a restart is already waited for waits for the same one.
    """
    job.disk.reason = event.disk
    if now_s >= job.disk.again_s:
        job.disk.again_s = now_s + first_s * 2.0 ** min(_DOUBLINGS, job.disk.waits)
        job.disk.waits += 1
    return job.disk.again_s - now_s


def forgive_disk(job: JobState) -> None:
    """It trains: its files can be written again."""
    job.disk.reason, job.disk.waits = "", 0


def wait_s(job: JobState, first_s: float) -> float:
    """How long to wait before the restart after the newest failure."""
    return first_s * 2.0 ** min(_DOUBLINGS, max(0, job.failures - 1))
