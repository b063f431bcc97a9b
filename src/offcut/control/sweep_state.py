"""What the controller knows of a sweep: its search, and the jobs of its trials."""

from __future__ import annotations

from dataclasses import dataclass, field

from offcut.search import SearchState


@dataclass(slots=True)
class TrialJob:
    """The job of a trial, whose reports have not all been read yet."""

    trial: int
    leg: int = 0
    #: How the job ended, where it has.
    ended: bool = False
    failed: bool = False
    reason: str = ""


@dataclass(slots=True)
class SweepState:
    """A sweep. Its trials are jobs; what is tried next follows from `search`."""

    search: SearchState
    submitted_s: float
    ended_s: float | None = None
    #: By the job's id.
    trial_jobs: dict[str, TrialJob] = field(default_factory=dict)

    def job_id(self, trial: int) -> str:
        """Return the id of the job of a trial."""
        return f"{self.search.sweep.id}.{trial}"


def sweep_id_of(job_id: str) -> str:
    """Return the id of the sweep to which a job would belong if it is the job of a trial."""
    return job_id.rpartition(".")[0]


def note_trial_end(sweeps: dict[str, SweepState], job_id: str, *, failed: bool, reason: str) -> None:
    """Note how the job of a trial ended. Its search hears of it when the last of its reports has been read."""
    sweep = sweeps.get(sweep_id_of(job_id))
    trial_job = sweep.trial_jobs.get(job_id) if sweep is not None else None
    if trial_job is not None:
        trial_job.ended, trial_job.failed, trial_job.reason = True, failed, reason
