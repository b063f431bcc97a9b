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
class StateCopy:
    """The job of a trial waits until the state of another trial's job has been copied for it."""

    #: The jobs whose state may be copied: the first of them that has saved any.
    sources: tuple[str, ...]
    #: Whether the copying has been asked for: the sources do not run.
    asked: bool = False


@dataclass(slots=True)
class SweepState:
    """A sweep. Its trials are jobs; what is tried next follows from `search`."""

    search: SearchState
    submitted_s: float
    ended_s: float | None = None
    #: By the job's id.
    trial_jobs: dict[str, TrialJob] = field(default_factory=dict)
    #: By trial, the node-seconds of those of its jobs that have ended.
    ended_node_s: dict[int, float] = field(default_factory=dict)
    #: By the id of the job that waits.
    copies: dict[str, StateCopy] = field(default_factory=dict)
    #: The jobs that were paused so that their state can be copied.
    held: dict[str, None] = field(default_factory=dict)

    def job_id(self, trial: int, leg: int | None = None) -> str:
        """Return the id of the job of a trial.

        Args:
            trial: the trial's number.
            leg: how often it had been given another trial's state; None: that of the job that it has now.
        """
        if leg is None:
            known = self.search.trials.get(trial)
            leg = 0 if known is None else known.leg
        return trial_job_id(self.search.sweep.id, trial, leg)

    def job_ids(self) -> tuple[str, ...]:
        """Return the ids of all jobs that its trials have had."""
        trials = self.search.trials.values()
        return tuple(self.job_id(trial.number, leg) for trial in trials for leg in range(trial.leg + 1))


def trial_job_id(sweep_id: str, trial: int, leg: int) -> str:
    """Return the id of the job of a trial: SWEEP.TRIAL, and SWEEP.TRIAL-LEG with the state of another trial."""
    return f"{sweep_id}.{trial}-{leg}" if leg else f"{sweep_id}.{trial}"


def sweep_id_of(job_id: str) -> str:
    """Return the id of the sweep to which a job would belong if it is the job of a trial."""
    return job_id.rpartition(".")[0]


def trial_of(job_id: str) -> int | None:
    """Return the number of the trial to which a job would belong if it is one of a sweep; None: it cannot be one."""
    number = job_id.rpartition(".")[2].partition("-")[0]
    return int(number) if number.isdecimal() else None


def note_trial_end(sweeps: dict[str, SweepState], job_id: str, *, failed: bool, reason: str, node_s: float) -> None:
    """Note how the job of a trial ended. Its search hears of it when the last of its reports has been read.

    Args:
        sweeps: the controller's sweeps.
        job_id: the job, which may be a trial's.
        failed: whether it failed.
        reason: how it ended.
        node_s: for how long nodes were assigned to it, in node-seconds.
    """
    sweep = sweeps.get(sweep_id_of(job_id))
    trial = trial_of(job_id)
    if sweep is not None and trial is not None:
        sweep.ended_node_s[trial] = sweep.ended_node_s.get(trial, 0.0) + node_s
    trial_job = sweep.trial_jobs.get(job_id) if sweep is not None else None
    if trial_job is not None:
        trial_job.ended, trial_job.failed, trial_job.reason = True, failed, reason
