"""Finds the job that a user means, whether it lives or is in the history."""

from __future__ import annotations

from typing import Any

from offcut.control import JobState
from offcut.control.state import ENDED
from offcut.errors import InputError
from offcut.model.ended_job import EndedJob
from offcut.service import views
from offcut.service.controller import Controller


def find(controller: Controller, job: str) -> JobState | EndedJob:
    """Return a job by its id or its name: of several of a name the newest that lives, else the newest.

    Raises:
        InputError: There is none.
    """
    jobs = controller.state.jobs
    if job in jobs:
        return jobs[job]
    named = [item for item in jobs.values() if item.job.name == job]
    if named:
        return max(named, key=lambda item: (item.phase not in ENDED, item.submitted_s))
    ended = controller.history.find(job)
    if ended is None:
        raise InputError(f"There is no job called {job}.", next_step="See: offcut status --all")
    return ended


def is_job(controller: Controller, job: str) -> bool:
    """Return whether a job has this id or name."""
    try:
        find(controller, job)
    except InputError:
        return False
    return True


def find_live(controller: Controller, job: str) -> JobState:
    """Return a job that has not ended, as `find` does.

    Raises:
        InputError: There is none, or it has ended.
    """
    found = find(controller, job)
    if isinstance(found, EndedJob):
        raise InputError(f"{found.job.id} has ended already ({found.outcome}).")
    if found.phase in ENDED:
        raise InputError(f"{found.job.id} has ended already ({found.phase}).")
    return found


def find_ended(controller: Controller, jobs: list[str]) -> tuple[str, ...]:
    """Return the ids of jobs that have ended.

    Raises:
        InputError: One does not exist, or has not ended.
    """
    found = [find(controller, job) for job in jobs]
    for item in found:
        if isinstance(item, JobState) and item.phase not in ENDED:
            raise InputError(
                f"{item.job.id} is {item.phase}: only jobs that have ended can be forgotten.",
                next_step=f"End it with: offcut cancel {item.job.id}",
            )
    return tuple(dict.fromkeys(item.job.id for item in found))


def shown(controller: Controller, found: JobState | EndedJob) -> dict[str, Any]:
    """Return the job as `offcut status` shows it."""
    return views.ended_job(found) if isinstance(found, EndedJob) else views.job(controller, found)
